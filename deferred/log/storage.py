"""Small files beside tables, wherever a table can be: through the object store of delta-rs and its credentials."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from deferred import failpoints
from deferred.errors import StorageError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


@dataclass(frozen=True)
class Storage:
    """The files of a folder."""

    location: str

    @cached_property
    def _files(self) -> FileSystem:
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import PyFileSystem

        return PyFileSystem(DeltaStorageHandler(self.location))

    def files(self) -> dict[str, int]:
        """The files of the folder and of those in it, with their sizes."""
        from pyarrow.fs import FileSelector, FileType

        if "://" not in self.location and not os.path.isdir(self.location):
            raise StorageError(f"The folder {self.location} does not exist.")
        try:
            found = self._files.get_file_info(FileSelector("", recursive=True))
        except OSError as error:
            raise StorageError(f"The folder {self.location} cannot be read: {error}. Try again.") from error
        return {info.path: int(info.size) for info in found if info.type == FileType.File}

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
        if "://" not in self.location:
            os.makedirs(self.location, exist_ok=True)
        data = text.encode()
        # delta-rs takes bytes only, and without a buffer pyarrow hands it something else.
        with self._files.open_output_stream(path, buffer_size=len(data) + 1) as stream:
            stream.write(data)
