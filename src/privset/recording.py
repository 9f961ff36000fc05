"""Steps that a graphics card plays back: most of a small step's time would go into starting its many kernels."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

WRITTEN_STEPS = 2
"""Steps of each shape and dtype on a graphics card before one is recorded."""

Step = Callable[..., Tensor]


def recorded(step: Step, device: torch.device, generators: Sequence[torch.Generator] = ()) -> Step:
    """``step`` as it is on a processor; on a graphics card, recorded after a few times and played back from then on.

    All that changes between two steps must do so in place, in tensors that the step knows; its result is overwritten
    by the next step whose arguments have the same shapes and dtypes.

    Args:
        step: From tensors to a tensor; draws from ``generators`` only, and never asks the device for a number.
        device: Where it computes.
        generators: Whose draws go on in a recording where they stood.
    """
    return _Recorded(step, device, generators) if device.type == "cuda" else step


def sent(drawn: Tensor, device: torch.device) -> Tensor:
    """What was drawn on the processor, on the device; a graphics card goes on with its work meanwhile."""
    return drawn.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else drawn


@contextlib.contextmanager
def settled(device: torch.device) -> Iterator[None]:
    """Wait, in the end, for what a graphics card was asked to do.

    A process that ends before its work does may disturb others that share the card through NVIDIA's MPS.
    """
    try:
        yield
    finally:
        if device.type == "cuda":
            torch.cuda.synchronize(device)


_Forms = tuple[tuple[torch.Size, torch.dtype], ...]


class _Recorded:
    def __init__(self, step: Step, device: torch.device, generators: Sequence[torch.Generator]) -> None:
        self._step, self._generators = step, generators
        self._stream = torch.cuda.Stream(device)
        self._taken: dict[_Forms, int] = {}
        self._recordings: dict[_Forms, tuple[torch.cuda.CUDAGraph, list[Tensor], Tensor]] = {}

    def __call__(self, *arguments: Tensor) -> Tensor:
        forms = tuple((argument.shape, argument.dtype) for argument in arguments)
        if forms not in self._recordings:
            # The first times compile and choose kernels, which cannot be recorded.
            self._taken[forms] = self._taken.get(forms, 0) + 1
            if self._taken[forms] <= WRITTEN_STEPS:
                return self._as_written(arguments)
            self._recordings[forms] = self._record(arguments)
        graph, slots, result = self._recordings[forms]
        for slot, argument in zip(slots, arguments, strict=True):
            slot.copy_(argument)
        graph.replay()
        return result

    def _as_written(self, arguments: Sequence[Tensor]) -> Tensor:
        around = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(around)
        with torch.cuda.stream(self._stream):
            result = self._step(*arguments)
        around.wait_stream(self._stream)
        return result

    def _record(self, arguments: Sequence[Tensor]) -> tuple[torch.cuda.CUDAGraph, list[Tensor], Tensor]:
        graph, slots = torch.cuda.CUDAGraph(), [argument.contiguous().clone() for argument in arguments]
        for generator in self._generators:
            graph.register_generator_state(generator)
        with _nothing_collected(), torch.cuda.graph(graph, stream=self._stream):
            result = self._step(*slots)
        return graph, slots, result


@contextlib.contextmanager
def _nothing_collected() -> Iterator[None]:
    """Keep objects that nobody needs any more, such as old recordings: to free one ends what is being recorded."""
    on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()
