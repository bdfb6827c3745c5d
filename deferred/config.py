"""The settings of a warehouse, from a TOML file, the environment and keywords; parsing durations and timestamps."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from deferred.errors import ConfigurationError, InvalidInputError, nearest

DEFAULT_FILE = Path("conf/deferred.toml")
KEYS: dict[str, tuple[str, ...] | None] = {
    "warehouse": ("path", "metadata_url"),
    "spark": ("master", "remote", "conf"),
    "views": ("folder",),
    "functions": None,
    "notices": ("log", "openlineage", "namespace", "webhook"),
}
"""The sections of the file and their keys; the keys of [functions] are names that the user chooses."""

_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


@dataclass(frozen=True)
class Settings:
    """Everything that can be set. Paths are absolute; `path` may also be an address such as s3a://bucket/warehouse."""

    path: str
    metadata_url: str = field(repr=False)  # may hold a password, as the next two may hold a token or a key
    spark_master: str | None = None
    spark_remote: str | None = field(default=None, repr=False)
    spark_conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    functions: Mapping[str, str] = field(default_factory=dict)
    notices: Mapping[str, str] = field(default_factory=dict, repr=False)
    views_folder: Path = Path("conf/views")
    base_folder: Path = Path()
    file: Path | None = None

    @classmethod
    def resolve(
        cls, config: str | Path | None = None, path: str | Path | None = None, metadata_url: str | None = None
    ) -> Settings:
        """Returns the settings in effect: a keyword wins over the environment, the environment over the file."""
        file = _file(config, path)
        values = _read(file) if file else _Values(None, Path.cwd(), {})
        if path is not None and config is None:
            # Not the warehouse that the environment's file names: its metadata database must not be used.
            values = values.without("warehouse")
        return _settings(values, path, metadata_url)

    @property
    def local_folder(self) -> Path:
        """A folder on this machine for what belongs to the warehouse but is not a table."""
        return self.base_folder if "://" in self.path else Path(self.path)


def _file(config: str | Path | None, path: str | Path | None) -> Path | None:
    """Returns the configuration file: the given one, the environment's, or the default one when it exists."""
    if config is not None:
        return Path(config).expanduser().absolute()
    named = os.environ.get("DEFERRED_CONFIG")
    if named:
        return Path(named).expanduser().absolute()
    if path is None and DEFAULT_FILE.is_file():
        return DEFAULT_FILE.absolute()
    return None


# ---- the file


@dataclass(frozen=True)
class _Values:
    """The contents of a file, checked for their form; `${NAME}` is replaced when a value is read."""

    file: Path | None
    base: Path
    sections: Mapping[str, Mapping[str, Any]]

    def without(self, section: str) -> _Values:
        return _Values(self.file, self.base, {k: v for k, v in self.sections.items() if k != section})

    def text(self, section: str, key: str) -> str | None:
        value = self.sections.get(section, {}).get(key)
        return None if value is None else _from_environment(value, self.file, f"{section}.{key}")

    def conf(self) -> dict[str, str]:
        found = self.sections.get("spark", {}).get("conf", {})
        return {k: _from_environment(v, self.file, f"spark.conf.{k}") for k, v in found.items()}


def _read(file: Path) -> _Values:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigurationError(
            f"There is no configuration file {file}. Create one with `deferred init`, or name "
            f"another one with --config or DEFERRED_CONFIG."
        ) from None
    except OSError as error:
        raise ConfigurationError(f"The configuration file {file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"The configuration file {file} is not UTF-8 text; save it as UTF-8.") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(
            f'The configuration file {file} is not valid TOML: {error}. Strings need quotes: path = "warehouse".'
        ) from None
    base = file.parent.parent if file.parent.name == "conf" else file.parent
    return _Values(file, base, {name: _section(file, name, value) for name, value in document.items()})


def _section(file: Path, name: str, value: object) -> dict[str, Any]:
    if name not in KEYS:
        raise ConfigurationError(f"{file}: There is no section [{name}]{nearest(name, KEYS)}")
    if not isinstance(value, dict):
        raise ConfigurationError(f"{file}: {name} is a section; write [{name}] on its own line, with its keys below.")
    checked: dict[str, Any] = {}
    keys = KEYS[name]
    for key, given in value.items():
        if keys is not None and key not in keys:
            raise ConfigurationError(f"{file}: [{name}] has no key {key}{nearest(key, keys)}")
        if (name, key) == ("spark", "conf"):
            checked[key] = _spark_conf(file, given)
        elif isinstance(given, str) and given.strip():
            checked[key] = given
        else:
            found = "an empty text" if isinstance(given, str) else _kind(given)
            raise ConfigurationError(f'{file}: {name}.{key} is {found}; a text in quotes is expected: {key} = "…".')
        if name == "functions" and not (key.isidentifier() and _FUNCTION.fullmatch(str(given))):
            raise ConfigurationError(
                f'{file}: functions.{key} = "{given}" is not understood; write the name that SQL '
                f'uses, and where the UDF is: tax = "shop.functions:tax".'
            )
    return checked


def _spark_conf(file: Path, value: object) -> dict[str, str]:
    """Returns Spark's settings as texts; `spark.sql.x = 1` without quotes is a nested table in TOML and means the same.

    >>> _spark_conf(Path("f"), {"spark.a": True, "spark": {"sql": {"b": 2}}})
    {'spark.a': 'true', 'spark.sql.b': '2'}
    """
    if not isinstance(value, dict):
        raise ConfigurationError(
            f"{file}: spark.conf is {_kind(value)}; write a section [spark.conf] with lines such "
            f'as "spark.sql.shuffle.partitions" = 8.'
        )
    flat: dict[str, str] = {}
    _flatten(file, "", value, flat)
    for key in flat:
        if not key.startswith("spark."):
            raise ConfigurationError(
                f"{file}: spark.conf.{key} is not a setting of Spark: their names begin with `spark.`."
            )
    return flat


def _flatten(file: Path, prefix: str, value: Mapping[str, Any], flat: dict[str, str]) -> None:
    for key, given in value.items():
        name = f"{prefix}{key}"
        if isinstance(given, dict):
            _flatten(file, f"{name}.", given, flat)
        elif isinstance(given, bool):
            flat[name] = str(given).lower()
        elif isinstance(given, (str, int, float)):
            flat[name] = str(given)
        else:
            raise ConfigurationError(
                f"{file}: spark.conf.{name} is {_kind(given)}; a text, number or boolean is expected."
            )


def _kind(value: object) -> str:
    names = {bool: "a boolean", int: "a number", float: "a number", list: "a list", dict: "a section", str: "a text"}
    return names.get(type(value), "a date or time")


_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def _from_environment(value: str, file: Path | None, setting: str) -> str:
    def replaced(found: re.Match[str]) -> str:
        name = found.group(1)
        if name not in os.environ:
            raise ConfigurationError(
                f"{file}: {setting} needs the environment variable {name}, which is not set. Set it, or write the "
                f"value into the file."
            )
        return os.environ[name]

    return _VARIABLE.sub(replaced, value)


# ---- from values to settings


def _settings(values: _Values, path: str | Path | None, metadata_url: str | None) -> Settings:
    folder = _warehouse_path(values, path)
    url = metadata_url or os.environ.get("DEFERRED_METADATA_URL")
    url = _anchored_url(url, Path.cwd()) if url else _file_url(values, folder)
    master, remote = _spark(values)
    views = values.text("views", "folder") or "conf/views"
    return Settings(
        path=folder,
        metadata_url=url,
        spark_master=master,
        spark_remote=remote,
        spark_conf=values.conf(),
        functions=dict(values.sections.get("functions", {})),
        notices=_notices(values),
        views_folder=Path(_anchored(views, values.base)),
        base_folder=values.base,
        file=values.file,
    )


def _notices(values: _Values) -> dict[str, str]:
    """Returns who is told what happens: files are absolute, addresses must be http or https."""
    found: dict[str, str] = {}
    for key in values.sections.get("notices", {}):
        value = values.text("notices", key) or ""
        address = value.startswith(("http://", "https://"))
        if key == "webhook" and not address:
            raise ConfigurationError(f"{values.file}: notices.webhook must be an http or https address.")
        found[key] = value if address or key == "namespace" else _anchored(value, values.base)
    return found


def _warehouse_path(values: _Values, path: str | Path | None) -> str:
    named = path if path is not None else os.environ.get("DEFERRED_PATH")
    if named is not None and not str(named).strip():
        raise ConfigurationError("The path of the warehouse is empty; name a folder.")
    if named is not None:
        return _anchored(str(named), Path.cwd())
    if values.file is None:
        raise ConfigurationError(
            f"No warehouse is named: there is no {DEFAULT_FILE} here. Create one with "
            f"`deferred init`, or name a file with --config or DEFERRED_CONFIG."
        )
    return _anchored(values.text("warehouse", "path") or "warehouse", values.base)


def _file_url(values: _Values, folder: str) -> str:
    url = values.text("warehouse", "metadata_url")
    if url:
        return _anchored_url(url, values.base)
    if "://" in folder:
        raise ConfigurationError(
            f"The warehouse {folder} is not on this machine, so its metadata database must be "
            f"named: set warehouse.metadata_url or DEFERRED_METADATA_URL."
        )
    return f"sqlite:///{folder}/deferred.db"


def _spark(values: _Values) -> tuple[str | None, str | None]:
    """Returns master and Connect address; one of them in the environment replaces both of the file."""
    master, remote = os.environ.get("DEFERRED_SPARK_MASTER"), os.environ.get("DEFERRED_SPARK_REMOTE")
    source = "DEFERRED_SPARK_MASTER and DEFERRED_SPARK_REMOTE are both set"
    if not master and not remote:
        master, remote = values.text("spark", "master"), values.text("spark", "remote")
        source = f"{values.file}: spark.master and spark.remote are both set"
    if master and remote:
        raise ConfigurationError(f"{source}; keep one of them.")
    if remote and not remote.startswith("sc://"):
        raise ConfigurationError(
            f"The address of a Spark Connect server must be sc://host:port, not {remote.split(';')[0]!r}."
        )
    return master or None, remote or None


def _anchored(path: str, base: Path) -> str:
    """Returns an absolute path; an address with a scheme other than file: stays as it is."""
    if path.startswith("file:"):
        path = re.sub("^file:/*", "/", path)
    if "://" in path:
        return path.rstrip("/")
    return os.path.normpath(base.absolute() / Path(path).expanduser())


def _anchored_url(url: str, base: Path) -> str:
    """Returns the URL with an absolute path if it names a SQLite file, so that every process means the same file."""
    found = re.match(r"^(sqlite(?:\+\w+)?:///)([^?]+)(.*)$", url)
    if not found or found.group(2) == ":memory:":
        return url
    return found.group(1) + os.path.normpath(base.absolute() / found.group(2)) + found.group(3)


# ---- durations and timestamps


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_WORDS = {"sec": "s", "second": "s", "min": "m", "minute": "m", "hour": "h", "day": "d", "week": "w"}
_PART = re.compile(r"(\d+)\s*([a-z]+)\s*")


def parse_duration(value: str | timedelta, what: str = "The duration") -> timedelta:
    """Parses a time span such as 90s, 15m, 1h, 24h, 1d, 1h30m or '2 hours'.

    >>> parse_duration("1h30m")
    datetime.timedelta(seconds=5400)
    >>> parse_duration("2 hours") == parse_duration("120m")
    True
    """
    duration = value if isinstance(value, timedelta) else _duration(value)
    if duration is None:
        raise InvalidInputError(f"{what} cannot be read: {value!r}. Write a number and a unit: 90s, 15m, 1h, 24h, 1d.")
    if duration <= timedelta(0):
        raise InvalidInputError(f"{what} must be greater than zero, not {value!r}.")
    return duration


def _duration(text: object) -> timedelta | None:
    if not isinstance(text, str):
        return None
    rest, seconds = text.strip().lower(), 0
    while found := _PART.match(rest):
        unit = found.group(2)
        factor = _UNITS.get(unit) or _UNITS.get(_WORDS.get(unit.removesuffix("s"), ""))
        if factor is None:
            return None
        seconds += int(found.group(1)) * factor
        rest = rest[found.end() :]
        if not rest:
            try:
                return timedelta(seconds=seconds)
            except OverflowError:
                return None
    return None


_CRON_FIELD = re.compile(r"[\d*,/\-?LW#A-Za-z]+")


def parse_cadence(value: str, what: str = "The cadence") -> timedelta | str:
    """Parses how often something is done: a time span, or for a scheduler five cron fields or a name such as @daily.

    >>> parse_cadence("15m")
    datetime.timedelta(seconds=900)
    >>> parse_cadence("30 6 * * 1-5"), parse_cadence("@daily")
    ('30 6 * * 1-5', '@daily')
    """
    text = value.strip()
    if re.fullmatch(r"@\w+", text):
        return text
    fields = text.split()
    if len(fields) == 5 and all(map(_CRON_FIELD.fullmatch, fields)):
        return " ".join(fields)
    try:
        return parse_duration(value, what)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"{error} Five cron fields, such as 30 6 * * 1-5, and @hourly, @daily, @weekly, @monthly are possible too."
        ) from None


def parse_timestamp(value: str | date | datetime, what: str = "The timestamp") -> datetime:
    """Parses a moment: ISO 8601, a date (its midnight), or `now`. Without a time zone, UTC is meant; returns UTC.

    >>> parse_timestamp("2026-01-01").isoformat()
    '2026-01-01T00:00:00+00:00'
    >>> parse_timestamp("2026-01-01T02:00:00+02:00").isoformat()
    '2026-01-01T00:00:00+00:00'
    """
    try:
        if isinstance(value, str):
            moment = datetime.now(UTC) if value.strip().lower() == "now" else datetime.fromisoformat(value.strip())
        elif isinstance(value, datetime):
            moment = value
        elif isinstance(value, date):
            moment = datetime(value.year, value.month, value.day)
        else:
            raise TypeError
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInputError(
            f"{what} cannot be read: {value!r}. Write ISO 8601, such as 2026-01-31, "
            f"2026-01-31T15:00:00Z or 2026-01-31T15:00:00+02:00, or now."
        ) from None
