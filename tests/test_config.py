"""Settings: what the file, the environment and keywords say, and how every mistake is named."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path

import pytest

from deferred.config import Settings, parse_duration, parse_timestamp
from deferred.errors import ConfigurationError, InvalidInputError


@pytest.fixture(autouse=True)
def _no_settings_of_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No environment variables of deferred, and no configuration file nearby."""
    for name in ("CONFIG", "PATH", "METADATA_URL", "SPARK_REMOTE", "SPARK_MASTER"):
        monkeypatch.delenv(f"DEFERRED_{name}", raising=False)
    monkeypatch.chdir(tmp_path)


def written(folder: Path, text: str) -> Path:
    file = folder / "conf" / "deferred.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def message(folder: Path, text: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        Settings.resolve(written(folder, text))
    return str(caught.value)


# ---- what holds


def test_an_empty_file_has_defaults_above_conf(tmp_path: Path) -> None:
    settings = Settings.resolve(written(tmp_path, ""))
    assert settings.path == str(tmp_path / "warehouse")
    assert settings.metadata_url == f"sqlite:///{tmp_path}/warehouse/deferred.db"
    assert settings.views_folder == tmp_path / "conf" / "views"
    assert settings.base_folder == tmp_path
    assert (settings.spark_master, settings.spark_remote, settings.spark_conf) == (None, None, {})


def test_all_settings(tmp_path: Path) -> None:
    settings = Settings.resolve(
        written(
            tmp_path,
            """
        [warehouse]
        path = "data/wh"
        metadata_url = "postgresql://me@host/db"
        [spark]
        master = "spark://host:7077"
        [spark.conf]
        "spark.sql.shuffle.partitions" = 8
        spark.ui.enabled = false
        [views]
        folder = "definitions"
    """,
        )
    )
    assert settings.path == str(tmp_path / "data" / "wh")
    assert settings.metadata_url == "postgresql://me@host/db"
    assert settings.spark_master == "spark://host:7077"
    assert settings.spark_conf == {"spark.sql.shuffle.partitions": "8", "spark.ui.enabled": "false"}
    assert settings.views_folder == tmp_path / "definitions"


def test_a_file_that_is_not_in_conf_is_relative_to_its_own_folder(tmp_path: Path) -> None:
    file = tmp_path / "there" / "settings.toml"
    file.parent.mkdir()
    file.write_text('[warehouse]\npath = "wh"\nmetadata_url = "sqlite:///meta.db"')
    settings = Settings.resolve(file)
    assert settings.path == str(tmp_path / "there" / "wh")
    assert settings.metadata_url == f"sqlite:///{tmp_path}/there/meta.db"


def test_absolute_paths_and_addresses_stay(tmp_path: Path) -> None:
    file = written(tmp_path, '[warehouse]\npath = "s3a://bucket/wh/"\nmetadata_url = "sqlite:////var/m.db"')
    settings = Settings.resolve(file)
    assert (settings.path, settings.metadata_url) == ("s3a://bucket/wh", "sqlite:////var/m.db")
    assert settings.local_folder == tmp_path


def test_the_usual_file_is_found(tmp_path: Path) -> None:
    written(tmp_path, '[warehouse]\npath = "wh"')
    assert Settings.resolve().path == str(tmp_path / "wh")


def test_a_path_alone_needs_no_file_and_takes_nothing_from_one(tmp_path: Path) -> None:
    written(tmp_path, '[warehouse]\nmetadata_url = "postgresql://production/db"')
    settings = Settings.resolve(path="mine")
    assert settings.path == str(tmp_path / "mine")
    assert settings.metadata_url == f"sqlite:///{tmp_path}/mine/deferred.db"


def test_a_path_alone_keeps_out_the_warehouse_of_the_environments_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = '[warehouse]\nmetadata_url = "postgresql://production/db"\n[spark]\nmaster = "local[1]"'
    monkeypatch.setenv("DEFERRED_CONFIG", str(written(tmp_path, text)))
    settings = Settings.resolve(path="mine")
    assert settings.metadata_url == f"sqlite:///{tmp_path}/mine/deferred.db"
    assert settings.spark_master == "local[1]"


def test_the_environment_wins_over_the_file_and_keywords_over_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = '[warehouse]\npath = "a"\nmetadata_url = "sqlite:///${NOT_SET}"\n[spark]\nmaster = "local[1]"'
    monkeypatch.setenv("DEFERRED_CONFIG", str(written(tmp_path, text)))
    monkeypatch.setenv("DEFERRED_PATH", "b")
    monkeypatch.setenv("DEFERRED_METADATA_URL", "sqlite:///b.db")
    monkeypatch.setenv("DEFERRED_SPARK_REMOTE", "sc://localhost:15002")
    settings = Settings.resolve()
    assert settings.path == str(tmp_path / "b")
    assert settings.metadata_url == f"sqlite:///{tmp_path}/b.db"
    assert (settings.spark_master, settings.spark_remote) == (None, "sc://localhost:15002")
    settings = Settings.resolve(path="c", metadata_url="sqlite:////c.db")
    assert (settings.path, settings.metadata_url) == (str(tmp_path / "c"), "sqlite:////c.db")


def test_variables_are_replaced_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "s3cret")
    text = '[warehouse]\nmetadata_url = "postgresql://me:${SECRET}@host/db"\n[spark.conf]\n"spark.x" = "${SECRET}"'
    settings = Settings.resolve(written(tmp_path, text))
    assert settings.metadata_url == "postgresql://me:s3cret@host/db"
    assert settings.spark_conf == {"spark.x": "s3cret"}


# ---- what is refused


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[warehous]", ["deferred.toml", "[warehous]", "did you mean warehouse"]),
        ("[spark]\nmastr = 'x'", ["[spark] has no key mastr", "did you mean master"]),
        ("[warehouse]\npath = 3", ["warehouse.path is a number", "a text in quotes"]),
        ("[warehouse]\npath = ''", ["warehouse.path is an empty text"]),
        ("[views]\nfolder = ['a']", ["views.folder is a list"]),
        ("views = 'a'", ["views is a section"]),
        ("[spark]\nconf = 'a'", ["spark.conf is a text", "[spark.conf]"]),
        ("[spark.conf]\nhive = 'a'", ["spark.conf.hive is not a setting of Spark"]),
        ("[spark.conf]\n'spark.a' = [1]", ["spark.conf.spark.a is a list"]),
        ("[spark]\nmaster = 'local'\nremote = 'sc://h'", ["both set", "keep one"]),
        ("[spark]\nremote = 'h:1'", ["sc://host:port"]),
        ("[functions]\ntax = 'shop.tax'", ["functions.tax", "shop.functions:tax"]),
        ("[functions]\n'my tax' = 'shop:tax'", ["functions.my tax", "shop.functions:tax"]),
        ("[functions]\ntax = 3", ["functions.tax is a number"]),
        ("[warehouse]\npath = warehouse", ["is not valid TOML", "line 2"]),
        ("[warehouse]\npath = 's3a://b/w'", ["metadata_url"]),
        ("[warehouse]\nmetadata_url = 'postgresql://${NO_SUCH_ONE}'", ["warehouse.metadata_url", "NO_SUCH_ONE"]),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, parts: list[str]) -> None:
    found = message(tmp_path, text)
    for part in parts:
        assert part in found


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"There is no configuration file .*nowhere\.toml"):
        Settings.resolve("nowhere.toml")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        Settings.resolve(tmp_path)
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="UTF-8"):
        Settings.resolve(tmp_path / "bytes.toml")


def test_no_warehouse_at_all() -> None:
    with pytest.raises(ConfigurationError, match=r"No warehouse is named.*deferred init"):
        Settings.resolve()
    with pytest.raises(ConfigurationError, match="is empty"):
        Settings.resolve(path="")


# ---- durations and timestamps


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("15m", 900),
        ("1h", 3600),
        ("24h", 86400),
        ("1d", 86400),
        ("2w", 1209600),
        ("1h30m", 5400),
        (" 1H ", 3600),
        ("2 hours", 7200),
        ("1 day 1 min", 86460),
    ],
)
def test_durations(text: str, seconds: int) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)
    assert parse_duration(timedelta(seconds=seconds)) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "1", "h", "1x", "1.5h", "-1h", "0s", "1h,", "1h x", "9" * 30 + "d", None, 5])
def test_durations_that_cannot_be_read(text: str) -> None:
    with pytest.raises(InvalidInputError, match="propagate_every"):
        parse_duration(text, "propagate_every")


@pytest.mark.parametrize(
    "value",
    [
        "2026-01-31T10:00:00Z",
        "2026-01-31T10:00:00",
        "2026-01-31 12:00+02:00",
        datetime(2026, 1, 31, 10),
        datetime(2026, 1, 31, 12, tzinfo=timezone(timedelta(hours=2))),
    ],
)
def test_timestamps(value: str | datetime) -> None:
    found = parse_timestamp(value)
    assert found == datetime(2026, 1, 31, 10, tzinfo=UTC)
    assert found.utcoffset() == timedelta(0)


def test_dates_and_now() -> None:
    assert parse_timestamp("2026-01-31") == parse_timestamp(date(2026, 1, 31)) == datetime(2026, 1, 31, tzinfo=UTC)
    assert abs(parse_timestamp("now") - datetime.now(UTC)) < timedelta(seconds=10)


@pytest.mark.parametrize("value", ["", "yesterday", "2026-13-01", "2026-02-30", 5, None, "0001-01-01T00:00+10:00"])
def test_timestamps_that_cannot_be_read(value: str) -> None:
    with pytest.raises(InvalidInputError, match=r"until cannot be read.*ISO 8601"):
        parse_timestamp(value, "until")
