"""Files and folders, wherever tables can be: on a local disk, or in an object store that delta-rs reaches."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING

from deferred import failpoints
from deferred.errors import StorageError
from deferred.log import object_store

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


def files_of(location: str) -> FileSystem:
    """The files of a folder as delta-rs reaches them."""
    from deltalake.fs import DeltaStorageHandler
    from pyarrow.fs import PyFileSystem

    return PyFileSystem(DeltaStorageHandler(location, object_store.options(location)))


def is_gone(location: str, root: str) -> bool:
    """Whether a storage that answers says that there is no Delta log at a path; False where nothing is known.

    `root` is a folder of the same storage: on a disk that is not mounted neither is there.
    """
    from pyarrow.fs import FileSelector

    log = "_delta_log"
    if "://" not in location:
        try:
            return os.path.isdir(root) and not os.listdir(f"{location}/{log}")
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False
    try:
        return not files_of(location).get_file_info(FileSelector(log, allow_not_found=True))
    except Exception:  # whatever the store says: it has not said that nothing is there
        return False


@dataclass(frozen=True)
class Storage:
    """The files of a folder."""

    location: str

    @cached_property
    def _files(self) -> FileSystem:
        return files_of(self.location)

    @property
    def _is_local(self) -> bool:
        return "://" not in self.location

    def files(self) -> dict[str, int]:
        """The files of the folder and of those in it, with their sizes."""
        from pyarrow.fs import FileSelector, FileType

        if self._is_local and not os.path.isdir(self.location):
            raise StorageError(f"The folder {self.location} does not exist.")
        try:
            found = self._files.get_file_info(FileSelector("", recursive=True))
        except OSError as error:
            raise StorageError(f"The folder {self.location} cannot be read: {error}. Try again.") from error
        return {info.path: int(info.size) for info in found if info.type == FileType.File}

    def folders(self) -> dict[str, datetime]:
        """The folders in this one, each with the time of its last change; none where there is no such folder."""
        if self._is_local:
            if not os.path.isdir(self.location):
                return {}
            entries = [entry for entry in os.scandir(self.location) if entry.is_dir()]
            return {entry.name: datetime.fromtimestamp(entry.stat().st_mtime, UTC) for entry in entries}
        from pyarrow.fs import FileSelector

        found: dict[str, datetime] = {}
        for info in self._files.get_file_info(FileSelector("", recursive=True, allow_not_found=True)):
            folder, inside, _ = info.path.partition("/")
            if inside and info.mtime is not None:
                found[folder] = max(info.mtime, found.get(folder, info.mtime))
        return found

    def remove(self) -> None:
        """Remove the folder and what is in it."""
        failpoints.reached("removal of a folder")
        if self._is_local:
            shutil.rmtree(self.location, ignore_errors=True)
        else:
            self._files.delete_dir("")

    def remove_file(self, path: str) -> None:
        """Remove a file of the folder, if it is there."""
        failpoints.reached(f"removal of {path}")
        try:
            self._files.delete_file(path)
        except FileNotFoundError:
            return

    def read(self, path: str) -> str | None:
        """The text of a file, None if there is none."""
        try:
            with self._files.open_input_stream(path) as stream:
                return bytes(stream.read()).decode("utf-8")
        except FileNotFoundError:
            return None

    def write(self, path: str, text: str) -> None:
        """Write a file, in the place of what was there."""
        failpoints.reached(f"file {path}")
        if self._is_local:
            os.makedirs(self.location, exist_ok=True)
        data = text.encode()
        # delta-rs takes bytes only, and without a buffer pyarrow hands it something else.
        with self._files.open_output_stream(path, buffer_size=len(data) + 1) as stream:
            stream.write(data)
