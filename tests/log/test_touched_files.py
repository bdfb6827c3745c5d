"""Nothing that the statistics of a file say of its rows is wrong: random files, as Spark and delta-rs write them."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from sqlglot import parse_one

from deferred.algebra.plan import used
from deferred.algebra.relevance import Dialect, Known, Relevance
from deferred.algebra.relevance.conditions import OWN
from deferred.algebra.relevance.constants import kind_of, place
from deferred.algebra.scalar import column, substitute
from deferred.log.delta_log import DeltaLog
from deferred.log.touched import Commits
from deferred.spark.data_skipping import holding
from deferred.spark.driver import exact_type

COLUMNS = {
    "i": "int",
    "l": "bigint",
    "p": "decimal(10,2)",
    "q": "decimal(20,2)",
    "r": "decimal(38,0)",
    "w": "decimal(18,9)",
    "x": "decimal(38,20)",
    "f": "float",
    "g": "double",
    "s": "string",
    "d": "date",
    "t": "timestamp",
    "n": "timestamp_ntz",
    "b": "boolean",
}
ZONE = "Europe/Berlin"


def value(random: Random, type_: str) -> Any:
    """A value of a type, often one at its end, or with as many digits as it can have."""
    if random.random() < 0.15:
        return None
    if type_ in ("int", "bigint"):
        bits = 31 if type_ == "int" else 63
        return random.choice((random.randint(-9, 9), random.randint(-(2**bits), 2**bits - 1), 2**bits - 1, -(2**bits)))
    if type_.startswith("decimal"):
        precision, scale = (int(part) for part in type_[8:-1].split(","))
        digits = random.choice((2, precision // 2, precision, precision))
        return Decimal(random.randint(-(10**digits) + 1, 10**digits - 1)).scaleb(-scale)
    if type_ in ("float", "double"):
        wide = [random.random(), random.uniform(-1e9, 1e9), 0.1, -0.0, 1e30, 1e-40, float("inf"), float("-inf")]
        found = random.choice([*wide, float("nan")])
        return pa.scalar(found, exact_type(type_)).as_py()
    if type_ == "string":
        alphabet = random.choice(("ab", "aé\U0001f600", "~\x7f\U0010ffff", "\U0001f600"))
        return "".join(random.choice(alphabet) for _ in range(random.choice((0, 1, 3, 15, 31, 32, 33, 70))))
    if type_ == "boolean":
        return random.random() < 0.5
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=random.randint(-(10**15), 10**16))
    if type_ == "date":
        return moment.date()
    return moment if type_ == "timestamp_ntz" else moment.replace(tzinfo=datetime.UTC)


def table(random: Random) -> pa.Table:
    size = random.choice((1, 2, 5))
    return pa.table(
        {name: pa.array([value(random, t) for _ in range(size)], exact_type(t)) for name, t in COLUMNS.items()}
    )


def written_by_spark(rows: pa.Table) -> str:
    """Statistics of a file as Delta writes them in Spark: exact numbers, 32 characters of a text and one more that is
    greater, milliseconds, nothing about booleans but their NULLs, NaN as the greatest."""
    said: dict[str, dict[str, Any]] = {"minValues": {}, "maxValues": {}}
    for name in rows.column_names:
        known = [v for v in rows.column(name).to_pylist() if v is not None]
        if not known or COLUMNS[name] == "boolean":
            continue
        for part, found in zip(said, _extremes(known, COLUMNS[name]), strict=True):
            said[part][name] = found
    nulls = {name: rows.column(name).null_count for name in rows.column_names}
    text = json.dumps(
        {"numRecords": rows.num_rows, **said, "nullCount": nulls}, default=lambda each: f"\x01{each:f}\x01"
    )
    return text.replace('"\\u0001', "").replace('\\u0001"', "")


def _extremes(known: list[Any], type_: str) -> tuple[Any, Any]:
    if type_ in ("float", "double"):
        low, high = min(known, key=_greatest_is_nan), max(known, key=_greatest_is_nan)
        shown = [_float(each, type_) for each in (low, high)]
        return shown[0], shown[1]
    low, high = min(known), max(known)
    if type_ == "string":
        cut = high[:32] + ("\x7f" if high[32:33] < "\x7f" else "\U0010ffff") if len(high) > 32 else high
        return low[:32], cut
    if type_ == "date":
        return low.isoformat(), high.isoformat()
    if type_.startswith("timestamp"):
        zone = "" if type_ == "timestamp_ntz" else "Z"
        shown = [each.replace(tzinfo=None).isoformat(timespec="milliseconds") + zone for each in (low, high)]
        return shown[0], shown[1]
    return low, high


def _greatest_is_nan(each: float) -> tuple[bool, float]:
    return (each != each, 0.0 if each != each else each)


def _float(each: float, type_: str) -> Any:
    if each != each or each in (float("inf"), float("-inf")):
        return {"inf": "Infinity", "-inf": "-Infinity"}.get(str(each), "NaN")
    if type_ == "double":
        return each
    return next(
        short
        for digits in range(1, 18)
        if pa.scalar(short := float(f"{each:.{digits}g}"), pa.float32()).as_py() == each
    )


def check(rows: pa.Table, known: Mapping[str, Known], where: str) -> None:
    """No value of any row is outside of what is known of its column."""
    for name, type_ in COLUMNS.items():
        kind, of = kind_of(type_), known[name]
        assert kind is not None
        for each in rows.column(name).to_pylist():
            if each is None:
                assert of.has_nulls, (where, name)
                continue
            assert of.has_values, (where, name, each)
            if isinstance(each, float) and each != each:
                assert of.highest is None, (where, name)
                continue
            at = Fraction(each) if type_.startswith("decimal") else place(each, kind, ZONE)
            if at is None:  # an infinite number: beyond all
                assert (of.highest if each > 0 else of.lowest) is None, (where, name, each)
                continue
            assert of.lowest is None or of.lowest <= at, (where, name, each)
            assert of.highest is None or at <= of.highest, (where, name, each)


@pytest.mark.parametrize("seed", range(40))
def test_no_row_is_outside_of_its_file(seed: int, tmp_path: Path) -> None:
    """A file that a commit adds, and one that a commit removes, of which the bounds are where it was added earlier."""
    random, path = Random(seed), str(tmp_path / "t")
    first, second = table(random), table(random)
    write_deltalake(path, first)
    write_deltalake(path, second, mode="append")
    DeltaTable(path).delete()
    (added,) = Commits(DeltaLog(path), 0, COLUMNS).touched(1) or []
    check(second, added.known, f"delta-rs, added, seed {seed}")
    for after in (0, 1):
        commits = Commits(DeltaLog(path), after, COLUMNS)
        removed = [commits.touched(version) or [] for version in range(after + 1, 3)][-1]
        assert len(removed) == 2
        for rows in (first, second):
            assert any(_fits(rows, group.known) for group in removed), (after, seed)
    log = Path(path, "_delta_log", f"{1:020}.json")
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            action["add"]["stats"] = written_by_spark(second)
    log.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
    (spark,) = Commits(DeltaLog(path), 0, COLUMNS).touched(1) or []
    check(second, spark.known, f"Spark, added, seed {seed}")


@pytest.mark.parametrize("seed", range(20))
def test_no_file_with_a_row_is_left_out(seed: int, tmp_path: Path) -> None:
    """Where a row is looked for by the statistics of files, as delta-rs lists them, the file with it is among them."""
    random, path = Random(seed), str(tmp_path / "t")
    rows = table(random)
    write_deltalake(path, rows)
    files = pa.table(DeltaTable(path).get_add_actions(flatten=True)).to_pylist()
    for name in COLUMNS:
        for place_ in range(rows.num_rows):
            assert holding(files, rows.slice(place_, 1), [name]) == files, (name, rows.column(name)[place_])


def _fits(rows: pa.Table, known: Mapping[str, Known]) -> bool:
    try:
        check(rows, known, "")
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize(
    ("type_", "inserted", "condition"),
    [
        ("decimal(20,2)", "123456789012345678.91", "p > 123456789012345670"),
        ("decimal(20,2)", "-123456789012345678.91", "p < -123456789012345670"),
        ("decimal(38,0)", "12345678901234567890123", "p > 12345678901234567890000"),
        ("decimal(38,0)", "-12345678901234567890123", "p < -12345678901234567890000"),
        ("decimal(18,9)", "123456789.123456789", "p = 123456789.123456789"),
    ],
)
def test_a_long_decimal_that_meets_the_condition_matters(
    type_: str, inserted: str, condition: str, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    rows = pa.table({"p": pa.array([Decimal(inserted)], exact_type(type_))})
    write_deltalake(path, rows)
    write_deltalake(path, rows, mode="append")
    (added,) = Commits(DeltaLog(path), 0, {"p": type_}).touched(1) or []
    asked = parse_one(condition, dialect="spark")
    asked = substitute(asked, {name: column(OWN + name) for name in used(asked)})
    decide = Relevance("t", ((asked,),), {f"{OWN}p": type_}, Dialect()).decider({"p": type_})
    assert decide(added.known, None)


def test_a_bound_of_a_long_decimal_is_a_value_of_its_type(tmp_path: Path) -> None:
    """Otherwise the file of 5.00 could hold 5.0000001, which is more than 5."""
    path = str(tmp_path / "t")
    rows = pa.table({"p": pa.array([Decimal("5.00")], exact_type("decimal(20,2)"))})
    write_deltalake(path, rows)
    write_deltalake(path, rows, mode="append")
    (added,) = Commits(DeltaLog(path), 0, {"p": "decimal(20,2)"}).touched(1) or []
    assert added.known["p"].lowest == added.known["p"].highest == 5
