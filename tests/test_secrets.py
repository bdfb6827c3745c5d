"""Passwords and tokens appear in no error, no repr, no record of an operation and no answer of a command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deferred import DeferredError, cli
from deferred.config import Settings
from deferred.errors import SparkFailure, redacted
from deferred.maintenance.operation import recorded
from deferred.metadata import Metadata, ViewRecord
from deferred.options import ViewOptions
from deferred.spark import session
from deferred.spark.engine import Engine
from deferred.spark.server import Server

SECRET = "hunter2'$%"
QUOTED = "hunter2%27%24%25"
CONFIGURATION = f"""
[warehouse]
path = "warehouse"
metadata_url = "postgresql://me:{QUOTED}@127.0.0.1:9/none?connect_timeout=1"
[spark]
remote = "sc://127.0.0.1:9/;token=hunter2token;user_id=me"
[spark.conf]
"spark.hadoop.fs.s3a.secret.key" = "hunter2key"
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CONFIG", "PATH", "METADATA_URL", "SPARK_REMOTE", "SPARK_MASTER", "DEBUG"):
        monkeypatch.delenv(f"DEFERRED_{name}", raising=False)
    file = tmp_path / "conf" / "deferred.toml"
    file.parent.mkdir()
    file.write_text(CONFIGURATION)
    return file


def test_settings_and_servers(project: Path) -> None:
    settings = Settings.resolve(project)
    assert "hunter2" in f"{settings.metadata_url} {settings.spark_remote} {settings.spark_conf}"
    assert "hunter2" not in repr(settings)
    assert "hunter2" not in repr(Server(1, 2, "hunter2", "host", 0.0))


@pytest.mark.parametrize(
    "command", [["status"], ["history"], ["init"], ["db", "current"], ["db", "upgrade"], ["refresh", "v"]], ids=" ".join
)
def test_commands(project: Path, command: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    for more in ([], ["--json"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(["--config", str(project), *command, *more])
        captured = capfd.readouterr()
        assert ended.value.code in (1, 2)
        assert "hunter2" not in captured.out + captured.err


@pytest.mark.parametrize("remote", ["sc://127.0.0.1:x/;token=hunter2", "sc://127.0.0.1:9;token=hunter2"])
def test_an_address_that_cannot_be_used(remote: str) -> None:
    """pyspark repeats the address in its own message."""
    with pytest.raises(DeferredError) as refused:
        session.start(None, remote, {})
    assert "hunter2" not in str(refused.value) + repr(refused.value)


@pytest.mark.parametrize(
    "error",
    [
        SparkFailure(f"no answer from jdbc:x://me:{SECRET}@host and spark.hadoop.fs.s3a.secret.key={SECRET}"),
        ConnectionError(f"postgresql://me:{SECRET}@host/db sc://host/;token={SECRET};x=1"),
    ],
    ids=["ours", "another"],
)
def test_records_of_operations(tmp_path: Path, error: Exception) -> None:
    """What an operation that fails leaves in the history, which the pages show."""

    class Context:
        requested_by = None
        owner = "somebody"
        listeners = ()
        engine = Engine()
        metadata = Metadata.open(f"sqlite:///{tmp_path}/m.db", create=True)

    table = Context.metadata.tables.add(name="v", location="/v", kind="view")
    view: ViewRecord = Context.metadata.views.add(
        name="v", sql="SELECT 1", options=ViewOptions(), columns=[], location="/v", table_id=table.id, depends_on=[]
    )
    context: Any = Context()
    with pytest.raises(type(error)), recorded(context, "refresh", view):
        raise error
    (record,) = Context.metadata.operations.recent()
    assert "hunter2" not in json.dumps([record.error, record.details])
    assert "***" in str(record.error)
    Context.metadata.close()


def test_what_is_left_alone() -> None:
    for text in ("SELECT a FROM t WHERE token > 5", "at 12:30 by a@b", "file:///x/y@z", "delta.`/a:b/c@d`"):
        assert redacted(text) == text
