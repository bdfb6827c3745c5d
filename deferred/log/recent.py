"""What was last found of things, kept for those that were asked for most recently; threads share it."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

V = TypeVar("V")


class Recent(Generic[V]):
    """A map with at most so many entries, which gives up the one that was not asked for longest.

    Every method takes a lock. To leave that to the interpreter would not do: between two of its steps, another thread
    may change the map that one goes through.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[object, V] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: object) -> V | None:
        """What is known of a thing, None where that is nothing."""
        with self._lock:
            value = self._kept.pop(key, None)
            if value is not None:
                self._kept[key] = value
            return value

    def put(self, key: object, value: V) -> None:
        """Keep what was found of a thing, in the place of what was known of it."""
        with self._lock:
            self._put(key, value)

    def replace(self, key: object, known: V, value: V) -> None:
        """Keep what was found of a thing, unless something else than `known` is known of it by now."""
        with self._lock:
            if self._kept.get(key) is known:
                self._put(key, value)

    def forget(self, key: object) -> None:
        """Keep nothing of a thing."""
        with self._lock:
            self._kept.pop(key, None)

    def _put(self, key: object, value: V) -> None:
        self._kept.pop(key, None)
        while len(self._kept) >= self._most:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = value
