"""The demo, run in a folder: the paper's retail story on a few rows, then its four scenarios over many sales."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from pathlib import Path

from deferred.config import DEFAULT_FILE
from deferred.demo.step import Step as Step
from deferred.errors import InvalidInputError
from deferred.progress import Progress

SHORT_LIVED = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""In a JVM that ends within a minute the second compiler costs more than it gains."""

SCHEMAS = {
    "customer": "custId INT, name STRING, address STRING, score STRING",
    "sales": "custId INT, itemNo INT, quantity INT, salesPrice DECIMAL(10, 2)",
}
"""The tables of the first act."""

MANY = 1_000_000
"""The sales of the second act."""


def examples() -> Path:
    """Returns the folder of the example project: installed as deferred/examples, or conf/ in a checkout."""
    return _installed("examples", "conf")


def dag_files() -> Path:
    """Returns the folder of the DAG files: installed as deferred/dags, or dags/ in a checkout."""
    return _installed("dags", "dags")


def _installed(name: str, in_checkout: str) -> Path:
    installed = Path(__file__).parents[1] / name
    return installed if installed.is_dir() else Path(__file__).parents[2] / in_checkout


def play(folder: Path, sales: int = MANY, progress: Progress | None = None) -> Generator[Step, None, None]:
    """Create the example in an empty folder and run it step by step; without sales, only its first act."""
    from deferred.demo.many import Many
    from deferred.demo.retail import Retail
    from deferred.maintenance.warehouse import Warehouse
    from deferred.spark import session

    folder = folder.absolute()
    if folder.exists() and any(folder.iterdir()):
        raise InvalidInputError(
            f"The demo needs an empty folder, and {folder} is not empty; name another one with --path."
        )
    shutil.copytree(examples(), folder / "conf", dirs_exist_ok=True)
    # The settings in the environment are for the user's own warehouse, not for this one.
    spark = session.start(None, None, {**SHORT_LIVED, "spark.sql.warehouse.dir": str(folder / "catalog")})
    try:
        with Warehouse.open(
            folder / DEFAULT_FILE,
            path=folder / "warehouse",
            spark=spark,
            metadata_url=f"sqlite:///{folder}/warehouse/deferred.db",
            listeners=[progress] if progress else [],
        ) as warehouse:
            if progress:
                progress.doing, progress.tasks = "Making tables", warehouse.tasks
            yield from Retail(warehouse, folder).scenes()
            if sales:
                yield from Many(warehouse, folder, sales).scenes()
    finally:
        spark.stop()
