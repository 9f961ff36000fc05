"""Readers of a user's own data, one file a format."""

from __future__ import annotations

from pathlib import Path

from privset.data.options import ReadingOptions
from privset.data.outline import Source
from privset.data.readers import parquet
from privset.data.readers.archive import ArchiveSource
from privset.data.readers.folder import FolderSource
from privset.errors import DataError

FORMATS = "a folder of class-named subfolders of PNG or JPEG files, an .npz with x and y, or parquet"


def source_of(path: Path, options: ReadingOptions) -> Source:
    """The reader for what is at ``path``, by its kind and its suffix."""
    if path.is_dir():
        if parquet.files_in(path):
            return parquet.ParquetSource(path=path, options=options)
        return FolderSource(path=path, options=options)
    if path.suffix.lower() == ".npz":
        return ArchiveSource(path=path, options=options)
    if path.suffix.lower() == ".parquet":
        return parquet.ParquetSource(path=path, options=options)
    raise DataError(f"{path}: cannot be read as images; data is {FORMATS}")
