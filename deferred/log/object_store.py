"""Object stores, for delta-rs: the credentials and addresses that Spark has, from Spark's own settings.

Hadoop has one configuration for a process, with settings of its own for single buckets; so it is here. Nothing has to
be said twice: what `spark.hadoop.fs.s3a.…` says to Spark is said to delta-rs in its words.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

PREFIX = "spark.hadoop.fs.s3a."

_NAMES = {
    "access.key": "AWS_ACCESS_KEY_ID",
    "secret.key": "AWS_SECRET_ACCESS_KEY",
    "session.token": "AWS_SESSION_TOKEN",
    "endpoint.region": "AWS_REGION",
}
"""What S3A calls a setting, and what delta-rs calls it."""

_settings: dict[str, str] = {}


def learn(settings: Mapping[str, str]) -> None:
    """Remember what some of Spark's settings say of object stores."""
    _settings.update({name: value for name, value in settings.items() if name.startswith(PREFIX)})


def options(location: str) -> dict[str, str] | None:
    """What delta-rs has to know to open a location; None where its own defaults (the environment) apply.

    >>> learn({f"{PREFIX}endpoint": "127.0.0.1:9000", f"{PREFIX}connection.ssl.enabled": "false"})
    >>> sorted(options("s3a://bucket/table").items())
    [('AWS_ALLOW_HTTP', 'true'), ('AWS_ENDPOINT_URL', 'http://127.0.0.1:9000')]
    >>> _settings.clear()
    """
    address = urlsplit(location)
    if address.scheme not in ("s3", "s3a"):
        return None
    found = {theirs: value for ours, theirs in _NAMES.items() if (value := _setting(address.netloc, ours))}
    endpoint = _setting(address.netloc, "endpoint")
    if endpoint:
        plain = (_setting(address.netloc, "connection.ssl.enabled") or "true").lower() == "false"
        found["AWS_ENDPOINT_URL"] = endpoint if "://" in endpoint else f"{'http' if plain else 'https'}://{endpoint}"
        if found["AWS_ENDPOINT_URL"].startswith("http://"):
            found["AWS_ALLOW_HTTP"] = "true"
    style = _setting(address.netloc, "path.style.access")
    if style:
        found["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] = "false" if style.lower() == "true" else "true"
    if "Anonymous" in (_setting(address.netloc, "aws.credentials.provider") or ""):
        found["AWS_SKIP_SIGNATURE"] = "true"
    return found or None


def _setting(bucket: str, name: str) -> str | None:
    """A setting of S3A; one for the bucket comes first, as it does in Hadoop."""
    return _settings.get(f"{PREFIX}bucket.{bucket}.{name}") or _settings.get(f"{PREFIX}{name}")
