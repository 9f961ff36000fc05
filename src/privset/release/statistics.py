"""Noisy statistics: what `privset measure` publishes, and sets are distilled from."""

from __future__ import annotations

import dataclasses

import torch

from privset.errors import ReleaseError
from privset.methods import Statistics
from privset.release import tensors

FILE = "statistics.safetensors"


@dataclasses.dataclass(frozen=True, eq=False)
class NoisyStatistics:
    """Noisy answers by name, in the order of their names; free to publish.

    >>> NoisyStatistics({"sums": torch.zeros(2, 3), "sizes": torch.ones(2, 1)})
    NoisyStatistics(sizes 2x1, sums 2x3)
    """

    tensors: Statistics

    def __post_init__(self) -> None:
        if not self.tensors:
            raise ReleaseError("there is not a single statistic")
        for name, value in self.tensors.items():
            if value.dtype != torch.float32 or not value.numel():
                raise ReleaseError(f"{name} must be float32 and not empty, not {value.dtype} {list(value.shape)}")
            if not bool(value.isfinite().all()):
                raise ReleaseError(f"{name} has values that are not finite")
        # One order, whatever order they were asked or are stored in: the digest depends on it.
        object.__setattr__(self, "tensors", {name: self.tensors[name] for name in sorted(self.tensors)})

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of every statistic, by name."""
        return {name: tuple(value.shape) for name, value in self.tensors.items()}

    def digest(self) -> str:
        """SHA-256 of the content, however a file encodes it."""
        return tensors.digest(self.tensors)

    def to_bytes(self) -> bytes:
        """As a safetensors file; the same statistics give the same bytes."""
        return tensors.to_bytes(self.tensors)

    @classmethod
    def from_bytes(cls, content: bytes, where: str = FILE) -> NoisyStatistics:
        """The statistics in a safetensors file's bytes; ``where`` names the file in messages.

        Raises:
            ReleaseError: Not a safetensors file, or not one that holds finite float32 tensors and nothing else.
        """
        found = tensors.from_bytes(content, where)
        try:
            return cls(found)
        except ReleaseError as error:
            raise ReleaseError(f"{where}: {error}; get the release again from its source") from error

    def __len__(self) -> int:
        return sum(value.numel() for value in self.tensors.values())

    def __repr__(self) -> str:
        parts = [f"{name} {'x'.join(map(str, shape))}" for name, shape in self.shapes.items()]
        return f"NoisyStatistics({', '.join(parts)})"
