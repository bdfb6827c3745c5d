"""What is refused of a new view without Spark: nobody waits for a JVM to read of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from deferred.errors import DeferredError, UnknownObjectError, UnsupportedSQLError
from deferred.log import tracking
from deferred.log.context import Context
from deferred.maintenance import views
from deferred.metadata import Metadata
from deferred.options import ViewOptions
from deferred.spark.engine import Engine


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Context]:
    write_deltalake(str(tmp_path / "r"), pa.table({"a": [1], "m": [[("x", 1)]]}, pa.schema(
        [("a", pa.int64()), ("m", pa.map_(pa.string(), pa.int64()))])))  # fmt: skip
    with Metadata.open(f"sqlite:///{tmp_path}/metadata.db", create=True) as metadata:
        opened = Context(metadata, Engine(), str(tmp_path / "warehouse"))
        tracking.track(opened, "r", str(tmp_path / "r"), None, None, "files")
        yield opened
        assert not opened.engine.started


WHOLE = "SELECT ROW_NUMBER() AS n FROM r"


@pytest.mark.parametrize(
    ("options", "sql", "error", "words"),
    [
        (ViewOptions(), "SELECT b FROM r", UnknownObjectError, "no column b"),
        (ViewOptions(refresh_policy="incremental_strict"), WHOLE, UnsupportedSQLError, "needs OVER"),
        (ViewOptions(maintain="self"), WHOLE, UnsupportedSQLError, "needs OVER"),
        (ViewOptions(maintain="self"), "SELECT x.a, y.m FROM r AS x JOIN r AS y ON x.a = y.a", UnsupportedSQLError,
         "maintain = 'self' is not possible"),
    ],
)  # fmt: skip
def test_a_view_is_refused_before_spark_starts(
    context: Context, options: ViewOptions, sql: str, error: type[DeferredError], words: str
) -> None:
    with pytest.raises(error, match=words):
        views.create(context, "v", sql, options)
