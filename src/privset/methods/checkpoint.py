"""A long optimisation that can be stopped at any step and taken up again with the same result, bit by bit."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from privset.errors import ConfigError
from privset.observer import Glimpse, Observer
from privset.privacy.standing import Checkpoint


class Stages:
    """The loops of one run, one after the other; a run that was stopped goes on in the midst of the one it was in.

    Args:
        generator: Whatever is random in the steps of a loop must come from it.
        checkpoint: Where states are kept.
        observer: Told of each loop as a phase.
    """

    def __init__(self, generator: torch.Generator, checkpoint: Checkpoint, observer: Observer) -> None:
        self._generator, self._checkpoint, self._observer = generator, checkpoint, observer
        self._steps: dict[str, int] = {}
        self._kept: dict[str, Tensor] = {}
        self._took = 0.0  # seconds, to keep the last state
        if (state := checkpoint.load()) is not None:
            try:
                length = int.from_bytes(state[:8], "little")
                words = json.loads(json.loads(state[8 : 8 + length])["__metadata__"]["steps"])
                self._steps = {str(name): int(steps) for name, steps in words.items()}
                self._kept = safetensors.torch.load(state)
            except (safetensors.SafetensorError, KeyError, ValueError, TypeError, AttributeError) as error:
                raise self._useless(error) from error

    def loop(
        self,
        name: str,
        total: int,
        tensors: Mapping[str, Tensor],
        outcome: Collection[str] | None = None,
        look: Callable[[], Glimpse] | None = None,
        parts: int | None = None,
    ) -> Iterator[int]:
        """The numbers of the steps of this loop that are left to do.

        Args:
            name: Of the loop; no two of a run have the same.
            total: Its number of steps.
            tensors: All that its steps change, but the generator; changed in place, by the steps and by taking up an
                earlier state.
            outcome: Names of those that are needed after the loop: of one that has ended only these are kept, and
                taken up. By default all.
            look: Shows the set as it is after a step; must not change it, nor use the generator.
            parts: Of how many parts each step is, if the steps tell of them by `part`.

        Raises:
            KeyboardInterrupt: Who observes it wanted to stop; the state after the last step is kept.
        """
        each = parts or 1
        self._observer.phase(name, total * each)
        results = {key: value for key, value in tensors.items() if outcome is None or key in outcome}
        first = self._steps.get(name, 0)
        if name in self._steps:
            self._restore(name, results if first == total else tensors)
        if first:
            self._observer.step(first * each)
        if parts is not None:
            self._observer.lap()
        kept = time.monotonic()
        with self._observer.patience() as asked:
            for step in range(first, total):
                yield step
                last = step + 1 == total
                stopped = not last and asked()
                due = last or stopped or time.monotonic() - kept >= self._pause()
                if due:
                    self._keep(name, step + 1, results if last else tensors)
                    kept = time.monotonic()
                if parts is None:
                    self._observer.step()
                else:
                    self._observer.lap()
                if look is not None and (due if self._checkpoint.shown_once_kept else parts is None):
                    self._observer.show(look)
                if stopped:
                    raise KeyboardInterrupt

    def part(self, look: Callable[[], Glimpse] | None = None) -> None:
        """One of the parts of a step is done; a state that may be shown only once it is kept is not shown by it."""
        self._observer.step()
        if look is not None and not self._checkpoint.shown_once_kept:
            self._observer.show(look)

    def _pause(self) -> float:
        """Seconds from one state to the next: keeping them is to take no more than a twentieth of the time."""
        seconds = self._checkpoint.seconds
        return max(seconds, 20 * self._took) if seconds else 0.0

    def _keep(self, name: str, steps: int, tensors: Mapping[str, Tensor]) -> None:
        now = {**tensors, "generator": self._generator.get_state()}
        others = {key: value for key, value in self._kept.items() if not key.startswith(f"{name}/")}
        # A copy of each: two names of one memory are more than the format can say.
        own = {key: value.detach().cpu().clone().contiguous() for key, value in now.items()}
        if odd := _not_finite(own):
            again = "The last state of before is kept: run this again to go on from there. If it ends so again, lower "
            never = "None was kept before, and the same run would end so again, or nearly so: lower "
            raise ConfigError(
                f"{name}: after {steps:,} steps {', '.join(odd)} have values that are not finite. "
                f"{again if self._steps else never}the learning rates; {self._checkpoint.otherwise}"
            )
        self._steps[name] = steps
        self._kept = others | {f"{name}/{key}": value for key, value in own.items()}
        begun = time.monotonic()  # by now a graphics card has done the steps that the copies wait for
        self._checkpoint.save(safetensors.torch.save(self._kept, metadata={"steps": json.dumps(self._steps)}))
        self._took = time.monotonic() - begun

    def _restore(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        """Become the state that was kept."""
        if odd := _not_finite({key: self._kept.get(f"{name}/{key}", value) for key, value in tensors.items()}):
            raise self._useless(ValueError(f"{', '.join(odd)} have values that are not finite"))
        try:
            with torch.no_grad():
                for key, value in tensors.items():
                    value.copy_(self._kept[f"{name}/{key}"])
            self._generator.set_state(self._kept[f"{name}/generator"])
        except (KeyError, RuntimeError, TypeError) as error:
            raise self._useless(error) from error

    def _useless(self, error: Exception) -> ConfigError:
        return ConfigError(
            f"the state in which an earlier run was stopped cannot be taken up ({error}); {self._checkpoint.amends}"
        )


def _not_finite(tensors: Mapping[str, Tensor]) -> list[str]:
    return [key for key, value in tensors.items() if value.is_floating_point() and not bool(value.isfinite().all())]
