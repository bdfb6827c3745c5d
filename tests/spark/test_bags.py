"""Changes of a table by Spark, where the driver does not make them itself."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from deferred.errors import InvariantError
from deferred.log.delta_log import DeltaLog
from deferred.spark import bags, data_skipping, temporaries
from deferred.spark.engine import Engine, Mark

COLUMNS = [("k", "int"), ("d", "decimal(20,2)"), ("s", "string")]
ROWS: list[tuple[Any, ...]] = [(1, Decimal("1.50"), "a"), (2, None, "b"), (None, Decimal(3), None), (900, None, "z")]
CHANGES = {ROWS[1]: -1, (2, Decimal(7), "it's"): 1, ROWS[2]: -1, (901, Decimal("-9.25"), None): 1}
TWICE = {ROWS[0]: -1, (5, None, None): 2}


@pytest.mark.parametrize("key", [(), ("k",)])
@pytest.mark.parametrize("at_driver", [True, False])
def test_a_merge_changes_exactly_the_rows(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: tuple[str, ...], at_driver: bool
) -> None:
    """With the ranges of the changed rows, which stay in Spark or not."""
    monkeypatch.setattr(bags, "FEW_BYTES", -1)
    monkeypatch.setattr(bags, "FEW_OF_THEM", 0)
    monkeypatch.setattr(data_skipping, "LISTED", 2_000 if not key else 0)
    monkeypatch.setattr(temporaries, "LOCAL_ROWS", 100 if at_driver else 0)
    engine, path = Engine(spark), str(tmp_path / "t")
    before = ROWS if key else [*ROWS, ROWS[0], ROWS[0]]
    changes = CHANGES if key else CHANGES | TWICE
    for part in (before[:2], before[2:]):
        spark.createDataFrame(part, "k int, d decimal(20,2), s string").write.format("delta").mode("append").save(path)
    with engine.temporaries() as results:
        frame = spark.createDataFrame(
            [(*row, n) for row, n in changes.items()], f"k int, d decimal(20,2), s string, {bags.COUNT} bigint"
        )
        found = results.put("changes", frame.toArrow(), frame.schema)
        asked = results.compute("asked", f"SELECT * FROM {found.name}")
        assert (results.local(asked) is not None) is at_driver
        done = bags.apply(
            engine, results, path, COLUMNS, asked, Mark("deferred-test", 1, {}), key, DeltaLog(path).files(9)
        )
        assert done == (2, 2) if key else (3, 4)
        assert spark.sql(f"DESCRIBE HISTORY delta.`{path}`").first()["operation"] == "MERGE"
        wanted = Counter(before)
        wanted.update(changes)
        assert Counter(map(tuple, spark.read.format("delta").load(path).collect())) == +wanted
        if not key:
            with pytest.raises(InvariantError, match="rebuild"):
                bags.apply(engine, results, path, COLUMNS, asked, Mark("deferred-test", 2, {}), key)
