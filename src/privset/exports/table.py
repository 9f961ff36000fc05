"""Parquet in the Hugging Face image layout: a column of PNG files and a column of labels, with the class names."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

from privset.errors import ConfigError
from privset.exports import croissant
from privset.exports.images import encoded
from privset.observer import Observer
from privset.release import Release
from privset.release.certificate import sha256

NAME = "data/train-00000-of-00001.parquet"
_ROWS = 1000
"""Rows of a group: few enough that a viewer need not fetch the whole file for a page."""


def files(release: Release, observer: Observer) -> Iterator[tuple[str, bytes]]:
    """The parquet file, and a croissant.json that describes it."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigError("writing parquet needs pyarrow; pip install 'privset[hub]'") from error

    observer.phase("writing images", len(release.set))
    pictures = []
    for number, content in enumerate(encoded(release)):
        pictures.append({"bytes": content, "path": f"{number:05}.png"})
        observer.step()
    features = {
        "image": {"_type": "Image"},
        "label": {"names": list(release.set.facts.classes), "_type": "ClassLabel"},
    }
    schema = pa.schema(
        {"image": pa.struct({"bytes": pa.binary(), "path": pa.string()}), "label": pa.int64()},
        metadata={"huggingface": json.dumps({"info": {"features": features}})},
    )
    rows = pa.table({"image": pictures, "label": release.set.labels.numpy()}, schema=schema)
    file = io.BytesIO()
    parquet.write_table(rows, file, row_group_size=_ROWS)
    content = file.getvalue()
    yield NAME, content
    described = croissant.of_table(release.certificate, NAME, sha256(content))
    yield croissant.FILE, croissant.to_bytes(described)
