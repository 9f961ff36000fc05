"""Networks of one form whose weights are stacked, so that a choice among them is a number on the device.

A recorded step (`privset.recording`) plays back the same operations on the same memory: it can be given a
number, and cannot be given another network.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.func import functional_call, stack_module_state


class Stack:
    """Several networks that differ in their weights only; these are copied, and are not trained further.

    Args:
        networks: At least one, all of the same layers.
    """

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        self._form, self._count = networks[0], len(networks)
        weights, buffers = stack_module_state(list(networks))  # type: ignore[arg-type]
        self._states = {name: value.detach() for name, value in (weights | buffers).items()}

    def __len__(self) -> int:
        return self._count

    def __call__(self, number: Tensor, images: Tensor) -> Tensor:
        """What the network of that number ``[1]``, from 0, says of images ``[n, c, h, w]``."""
        state = {name: value.index_select(0, number)[0] for name, value in self._states.items()}
        return functional_call(self._form, state, (images,))
