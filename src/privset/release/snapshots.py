"""The set as it was along the run that made it: functions of the first of its answers, published with it for free."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from privset.errors import ReleaseError
from privset.release import tensors

FILE = "snapshots.safetensors"


@dataclasses.dataclass(frozen=True, eq=False)
class Snapshots:
    """Images ``[m, c, h, w]`` in the form of the set, by the number of answers they are made of.

    Attributes:
        images: The last of them is the set itself; its labels are those of all.
    """

    images: Mapping[int, Tensor]

    @property
    def answers(self) -> tuple[int, ...]:
        """How many answers each is made of."""
        return tuple(self.images)

    def check(self, made: Tensor) -> None:
        """Raise `ReleaseError` unless these can have become the images ``made``."""
        for answers, images in self.images.items():
            if (images.dtype, images.shape) != (made.dtype, made.shape):
                raise ReleaseError(f"the snapshot after {answers:,} answers is not of the form of the set")
            if images.is_floating_point() and not bool(images.isfinite().all()):
                raise ReleaseError(f"the snapshot after {answers:,} answers has values that are not finite")
        if list(self.images) != sorted(self.images) or not torch.equal(self.images[self.answers[-1]], made):
            raise ReleaseError("snapshots are of growing numbers of answers, and the last of them is the set itself")

    @property
    def _named(self) -> dict[str, Tensor]:
        width = int(math.log10(self.answers[-1])) + 1  # a file has its tensors in the order of their names
        return {f"after-{answers:0{width}}": images for answers, images in self.images.items()}

    def digest(self) -> str:
        """SHA-256 of the content, however a file encodes it; see `privset.release.tensors.digest`."""
        return tensors.digest(self._named)

    def to_bytes(self) -> bytes:
        """A safetensors file; the same snapshots give the same bytes."""
        return tensors.to_bytes(self._named)

    @classmethod
    def from_bytes(cls, content: bytes, answers: Sequence[int], where: str = FILE) -> Snapshots:
        """Those in a safetensors file's bytes, of these numbers of answers; ``where`` names the file in messages.

        Raises:
            ReleaseError: Not a safetensors file, or not one that holds such snapshots and nothing else.
        """
        found = tensors.from_bytes(content, where)
        if len(found) != len(answers):
            raise ReleaseError(f"{where}: holds {len(found)} snapshots, not {len(answers)}; get the release again")
        snapshots = cls(dict(zip(answers, (found[name] for name in sorted(found)), strict=True)))
        if snapshots._named.keys() != found.keys():
            raise ReleaseError(f"{where}: holds snapshots of other numbers of answers; get the release again")
        return snapshots


def file_line(answers: Sequence[int]) -> str:
    """The line of a card's list of files for snapshots after so many answers; nothing if there are none."""
    if not answers:
        return ""
    return (
        f"- `{FILE}`: the images as they were after {', '.join(f'{number:,}' for number in answers)} answers, "
        "and the labels are the same; `privset evaluate FOLDER --data DATA --along` shows how accuracy grew with "
        "epsilon\n"
    )
