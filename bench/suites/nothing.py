"""Nothing to do: a propagate without changes, or after an irrelevant commit, and `status` of many views.

All from the shell, where no JVM can be found.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.measure import Bench
from bench.options import Options
from bench.results import Measurement
from bench.suites.shell import command
from bench.suites.smallest import make_tables

SUITE = "nothing"
VIEWS = 100


def run(bench: Bench, options: Options) -> Iterator[Measurement]:
    from deferred import Warehouse

    views = VIEWS if options.views is None else options.views
    with bench.scratch(SUITE) as folder:
        make_tables(bench.spark, folder)
        with Warehouse.open(path=folder / "warehouse", spark=bench.spark) as wh:
            wh.track("t", folder / "t", key=["id"])
            for number in range(views):
                wh.create_view(f"v{number}", f"SELECT id, g, v FROM t WHERE id % {views} = {number}")
            wh.create_view("few", "SELECT id, g, v FROM t WHERE id < 0")
        table = f"delta.`{folder / 't'}`"
        irrelevant = f"INSERT INTO {table} SELECT * FROM {table} WHERE id >= 0 LIMIT 1"
        without_java = {"DEFERRED_PATH": str(folder / "warehouse"), "JAVA_HOME": "/nowhere", "PATH": "/nowhere"}
        for name, arguments, before in (
            ("propagate", ["propagate", "v0"], None),
            ("irrelevant", ["propagate", "few"], irrelevant),
            ("status", ["status"], None),
            ("help", ["--help"], None),
        ):
            measurement = Measurement(SUITE, name, "none", f"{views} views", 0)
            for number in range(options.warm_up + options.repetitions):
                if before is not None:
                    bench.spark.sql(before)
                sample = bench.measure(lambda a=arguments: command(folder, *a, environment=without_java))
                if number >= options.warm_up:
                    measurement.sides.setdefault("command", []).append(sample)
            bench.settle()
            measurement.note = "without a JVM"
            yield measurement
