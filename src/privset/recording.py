"""Steps that a graphics card plays back: most of a small step's time would go into starting its many kernels."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

WRITTEN_STEPS = 2
"""Steps of each shape and dtype on a graphics card before one is recorded."""

Step = Callable[..., Tensor]


class Counted(Protocol):
    """A stream of random numbers whose place the processor counts, in blocks (`privset.privacy.chacha`)."""

    def take(self, blocks: int) -> int:
        """The number of the first of so many blocks, which are used up."""
        ...

    def numbered_from(self, slot: Tensor) -> contextlib.AbstractContextManager[Callable[[], int]]:
        """Have draws begin where the slot says once they are played back, and count them."""
        ...


Draws = Sequence[torch.Generator | Counted]


def recorded(step: Step, device: torch.device, generators: Draws = ()) -> Step:
    """``step`` as it is on a processor; on a graphics card, recorded after a few times and played back from then on.

    All that changes between two steps must do so in place, in tensors that the step knows; its result is overwritten
    by the next step whose arguments have the same shapes and dtypes.

    Args:
        step: From tensors to a tensor; draws from ``generators`` only, and never asks the device for a number.
        device: Where it computes.
        generators: Torch's, or streams that are counted, whose draws go on in a recording where they stood: never the
            same number twice. All that the step draws from must be named.
    """
    return _Recorded(step, torch.cuda.Stream(device), generators) if device.type == "cuda" else step


class Beside:
    """Work that a graphics card may do beside what follows it; a processor does it at once.

    What is computed within `begin` is there after `join`, which whoever begins must call before a recorded step ends.

    Args:
        device: Where it is done.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    @contextlib.contextmanager
    def begin(self) -> Iterator[None]:
        """Have what is computed in here wait for what was before, and for nothing else."""
        if self._stream is None:
            yield
            return
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        with torch.cuda.stream(self._stream):
            yield

    def join(self, *values: Tensor) -> None:
        """Wait for it; these values of it are used from here on."""
        if self._stream is not None:
            around = torch.cuda.current_stream(self._stream.device)
            around.wait_stream(self._stream)
            for value in values:
                value.record_stream(around)


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


@dataclasses.dataclass
class _Recording:
    """A graph, where it finds its arguments and leaves its result, and what it takes of streams, from where."""

    graph: torch.cuda.CUDAGraph
    slots: list[Tensor]
    result: Tensor
    draws: list[tuple[Counted, Tensor, int]]
    around: torch.cuda.Stream

    def play(self, arguments: Sequence[Tensor]) -> Tensor:
        now = torch.cuda.current_stream(self.around.device)
        if now != self.around:  # slots are not written before the last time has read them
            now.wait_stream(self.around)
            self.around = now
        for slot, argument in zip(self.slots, arguments, strict=True):
            slot.copy_(argument)
        for stream, slot, blocks in self.draws:
            slot.fill_(stream.take(blocks))
        self.graph.replay()
        return self.result


class _Recorded:
    def __init__(self, step: Step, stream: torch.cuda.Stream, generators: Draws = ()) -> None:
        self._step, self._stream = step, stream
        self._generators = [one for one in generators if isinstance(one, torch.Generator)]
        self._counted = [one for one in generators if not isinstance(one, torch.Generator)]
        self._taken: dict[_Forms, int] = {}
        self._recordings: dict[_Forms, _Recording] = {}

    def __call__(self, *arguments: Tensor) -> Tensor:
        forms = tuple((argument.shape, argument.dtype) for argument in arguments)
        if forms not in self._recordings:
            # The first times compile and choose kernels, which cannot be recorded.
            self._taken[forms] = self._taken.get(forms, 0) + 1
            if self._taken[forms] <= WRITTEN_STEPS:
                return self._as_written(arguments)
            self._recordings[forms] = self._record(arguments)
        return self._recordings[forms].play(arguments)

    def _as_written(self, arguments: Sequence[Tensor]) -> Tensor:
        around = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(around)
        with torch.cuda.stream(self._stream):
            result = self._step(*arguments)
        around.wait_stream(self._stream)
        return result

    def _record(self, arguments: Sequence[Tensor]) -> _Recording:
        graph, slots = torch.cuda.CUDAGraph(), [argument.contiguous().clone() for argument in arguments]
        for generator in self._generators:
            graph.register_generator_state(generator)
        places = [torch.zeros((), dtype=torch.int64, device=self._stream.device) for _ in self._counted]
        with contextlib.ExitStack() as stack:
            stack.enter_context(_nothing_collected())
            counts = [
                stack.enter_context(stream.numbered_from(place))
                for stream, place in zip(self._counted, places, strict=True)
            ]
            with torch.cuda.graph(graph, stream=self._stream):
                # Aliases that autograd takes for others: new arguments are no changes to what it remembers.
                result = self._step(*(slot.data for slot in slots))
            blocks = [count() for count in counts]
        draws = list(zip(self._counted, places, blocks, strict=True))
        return _Recording(graph, slots, result, draws, torch.cuda.current_stream(self._stream.device))


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
