"""How long-running code says where it is, without printing."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class Glimpse:
    """A set as it forms: normalised images ``[m, c, h, w]`` and labels ``[m]``; the next step changes them in place.

    Attributes:
        images: On whatever device they are.
        labels: Likewise.
        values: Figures worth a curve, by name; numbers, or tensors ``[]``.
    """

    images: Tensor
    labels: Tensor
    values: Mapping[str, Tensor | float] = dataclasses.field(default_factory=dict)


class Observer:
    """Receives progress and does nothing with it; the command line draws bars, tests count.

    A phase is announced once with the number of steps it will take (0: not known), then stepped. From a method
    the values are functions of noisy answers and of the synthetic set; from an evaluation they are accuracies on
    real images, which are for whoever holds these.
    """

    def phase(self, name: str, total: int) -> None:
        """Start the phase ``name`` of ``total`` steps; it ends when the next one starts."""

    def step(self, count: int = 1, **values: float) -> None:
        """``count`` steps of the current phase are done; ``values`` are figures worth showing."""

    def lap(self) -> None:
        """A moment to take the time: steps that come together, as answers to several questions at once, end here.

        Called after each such round of steps, and once before the first; not at all where steps come one by one.
        """

    def spent(self, epsilon: float, budget: float) -> None:
        """All charges so far cost ``epsilon`` of ``budget``; what they paid for may be asked from now on."""

    def going_on(self, folder: Path) -> None:
        """The run takes up one that was stopped and left its work in ``folder``; what that paid for is not charged."""

    def patience(self) -> contextlib.AbstractContextManager[Callable[[], bool]]:
        """Within, work can be stopped after each of its steps; the function says whether someone wants that.

        Who watches may hold an interrupt back until then, so that what was done by then is kept.
        """
        return contextlib.nullcontext(lambda: False)

    def irrevocable(self, epsilon: float, ledger: Path) -> contextlib.AbstractContextManager[object]:  # noqa: ARG002
        """Within, a run goes on that cannot be taken up again: if it is stopped, what it charges would be lost.

        That is up to ``epsilon``, and stays in ``ledger``. Who watches may ask again before it is stopped.
        """
        return contextlib.nullcontext()

    def show(self, look: Callable[[], Glimpse]) -> None:
        """The set has changed, and ``look`` shows it; called at every step, so look now and then only.

        To look costs a copy from the device, which a graphics card has to stop for. What is seen must be made of noisy
        answers that were charged and of public randomness, like the finished set, of which it is then a part that was
        paid for; so it is with every method here. One that also keeps private state must not show that.
        """


class Observers(Observer):
    """Several observers that are told the same."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def phase(self, name: str, total: int) -> None:
        """Tell all of them."""
        for observer in self._observers:
            observer.phase(name, total)

    def step(self, count: int = 1, **values: float) -> None:
        """Tell all of them."""
        for observer in self._observers:
            observer.step(count, **values)

    def lap(self) -> None:
        """Tell all of them."""
        for observer in self._observers:
            observer.lap()

    def spent(self, epsilon: float, budget: float) -> None:
        """Tell all of them."""
        for observer in self._observers:
            observer.spent(epsilon, budget)

    def going_on(self, folder: Path) -> None:
        """Tell all of them."""
        for observer in self._observers:
            observer.going_on(folder)

    @contextlib.contextmanager
    def patience(self) -> Iterator[Callable[[], bool]]:
        """Whether any of them wants it."""
        with contextlib.ExitStack() as stack:
            asked = [stack.enter_context(observer.patience()) for observer in self._observers]
            yield lambda: any(one() for one in asked)

    @contextlib.contextmanager
    def irrevocable(self, epsilon: float, ledger: Path) -> Iterator[None]:
        """Tell all of them."""
        with contextlib.ExitStack() as stack:
            for observer in self._observers:
                stack.enter_context(observer.irrevocable(epsilon, ledger))
            yield

    def show(self, look: Callable[[], Glimpse]) -> None:
        """Let all of them look."""
        for observer in self._observers:
            observer.show(look)
