"""What a generator made before, for critics to learn from beside what it makes now.

A generator that runs ahead of its critics goes round in circles: from black images to white ones and back, since each
lesson has critics forget what was wrong with those of the lesson before. What it made is made of answers alone, so to
keep it costs nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

from privset.recording import sent

SLOTS = 512
"""Images of each class that are kept: of all lessons so far, each as likely."""


class Replay:
    """Images of earlier steps.

    Args:
        random: Public.
    """

    def __init__(self, random: torch.Generator) -> None:
        self._random, self._count = random, 0
        self._kept: Tensor | None = None

    def beside(self, fresh: Tensor, old: int) -> Tensor:
        """Images ``[classes, k, c, h, w]`` of this step, and ``old`` more of each class, of all steps so far."""
        if old == 0:
            return fresh
        if self._kept is None:
            self._kept = fresh.new_empty(SLOTS, fresh.shape[0], *fresh.shape[2:])
        slot = self._count if self._count < SLOTS else self._below(self._count + 1)
        if slot < SLOTS:
            self._kept[slot] = fresh[:, self._below(fresh.shape[1])]
        self._count += 1
        drawn = torch.randint(min(self._count, SLOTS), (old,), generator=self._random)
        return torch.cat([fresh, self._kept[sent(drawn, fresh.device)].transpose(0, 1)], 1)

    def _below(self, end: int) -> int:
        return int(torch.randint(end, (), generator=self._random))
