"""A long optimisation that can be stopped at any step and taken up again with the same result, bit by bit."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from privset.errors import ConfigError
from privset.observer import Observer


class Checkpoint:
    """Keeps nothing, so that a loop that was stopped begins anew; the pipeline has one that keeps a file."""

    seconds = 10.0
    """A state is kept this often."""

    def load(self) -> bytes | None:
        """The state that was kept last."""
        return None

    def save(self, state: bytes) -> None:
        """Keep this state in place of the last one."""


class Loop:
    """Everything that the steps of an optimisation change, and nothing else.

    Args:
        tensors: By name; they are changed in place, by the steps and by taking up an earlier state.
        optimiser: Of some of them.
        schedule: Of its learning rate.
        generator: Whatever is random in the steps must come from it.
    """

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        optimiser: torch.optim.Optimizer,
        schedule: torch.optim.lr_scheduler.LRScheduler,
        generator: torch.Generator,
    ) -> None:
        self._tensors, self._optimiser, self._schedule, self._generator = tensors, optimiser, schedule, generator

    def steps(self, name: str, total: int, checkpoint: Checkpoint, observer: Observer) -> Iterator[int]:
        """The numbers of the steps that are left to do, of ``total``; the state is kept now and then between two."""
        observer.phase(name, total)
        state = checkpoint.load()
        first = 0 if state is None else self._restore(state)
        if first:
            observer.step(first)
        kept = time.monotonic()
        for step in range(first, total):
            yield step
            if time.monotonic() - kept >= checkpoint.seconds:
                checkpoint.save(self._state(step + 1))
                kept = time.monotonic()
            observer.step()

    def _state(self, step: int) -> bytes:
        tensors = {f"tensor.{name}": value.detach() for name, value in self._tensors.items()}
        numbers = {}
        for parameter, memory in self._optimiser.state_dict()["state"].items():
            for name, value in memory.items():
                if isinstance(value, Tensor):
                    tensors[f"optimiser.{parameter}.{name}"] = value
                else:
                    numbers[f"{parameter}.{name}"] = value
        tensors["generator"] = self._generator.get_state()
        words = {
            "step": step,
            "optimiser": numbers,
            "rates": [group["lr"] for group in self._optimiser.param_groups],
            "schedule": self._schedule.state_dict(),
        }
        # A copy of each: two names of one memory are more than the format can say.
        copies = {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()}
        return safetensors.torch.save(copies, metadata={"loop": json.dumps(words)})

    def _restore(self, state: bytes) -> int:
        """Become the state; returns how many steps it had done."""
        try:
            length = int.from_bytes(state[:8], "little")
            words = json.loads(json.loads(state[8 : 8 + length])["__metadata__"]["loop"])
            tensors = safetensors.torch.load(state)
            memory: dict[int, dict[str, object]] = {}
            for name, value in words["optimiser"].items():
                parameter, _, key = name.partition(".")
                memory.setdefault(int(parameter), {})[key] = value
            for name, value in tensors.items():
                if name.startswith("optimiser."):
                    _, parameter, key = name.split(".", 2)
                    memory.setdefault(int(parameter), {})[key] = value
            with torch.no_grad():
                for name, value in self._tensors.items():
                    value.copy_(tensors[f"tensor.{name}"])
            self._optimiser.load_state_dict(self._optimiser.state_dict() | {"state": memory})
            for group, rate in zip(self._optimiser.param_groups, words["rates"], strict=True):
                group["lr"] = rate
            self._schedule.load_state_dict(words["schedule"])
            self._generator.set_state(tensors["generator"])
            return int(words["step"])
        except (safetensors.SafetensorError, KeyError, ValueError, RuntimeError, TypeError) as error:
            raise ConfigError(
                f"the state in which an earlier run was stopped cannot be taken up ({error}); delete "
                "state.safetensors in the folder of that run to begin this part anew, which costs nothing"
            ) from error
