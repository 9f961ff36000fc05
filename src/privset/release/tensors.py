"""Named tensors in a safetensors file: written the same way always, read with suspicion, known by their content."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
import safetensors
import safetensors.torch
from torch import Tensor

from privset.errors import ReleaseError

# A single key: with two or more, safetensors 0.8 writes them in a random order (safetensors #584).
_METADATA = {"format": "pt"}


def to_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """A safetensors file; the same tensors give the same bytes."""
    return safetensors.torch.save({name: value.contiguous() for name, value in tensors.items()}, metadata=_METADATA)


def from_bytes(content: bytes, where: str) -> dict[str, Tensor]:
    """The tensors of a safetensors file; ``where`` names it in messages. Nothing in the file can run code.

    Raises:
        ReleaseError: Not a safetensors file.
    """
    try:
        return safetensors.torch.load(content)
    except (safetensors.SafetensorError, KeyError, ValueError, RuntimeError) as error:
        raise ReleaseError(
            f"{where}: not a readable safetensors file ({error}); get the release again from its source"
        ) from error


def digest(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of the content: for each tensor its name, dtype and shape, then its little-endian bytes.

    It does not depend on how a file encodes the tensors, so a converted copy can be recognised.
    """
    found = hashlib.sha256()
    for name, value in tensors.items():
        array = value.numpy()
        found.update(f"{name} {array.dtype.name} {list(array.shape)}\n".encode())
        found.update(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes())
    return found.hexdigest()
