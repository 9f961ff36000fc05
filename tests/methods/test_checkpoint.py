import pytest
import torch

from privset.errors import ConfigError
from privset.methods.checkpoint import Checkpoint, Loop
from privset.observer import Observer


class Memory(Checkpoint):
    """Keeps every state."""

    seconds = 0.0

    def __init__(self, state=None):
        self.states = [] if state is None else [state]

    def load(self):
        return self.states[-1] if self.states else None

    def save(self, state):
        self.states.append(state)


class Counting(Observer):
    def __init__(self):
        self.total, self.done = None, 0

    def phase(self, name, total):
        self.total = total

    def step(self, count=1, **values):
        self.done += count


OPTIMISERS = {
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.05, betas=(0.9, 0.99)),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.05),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.5),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.05),
}


def optimise(kind, checkpoint, observer=None, stop=None, steps=12):
    """Follow random targets; returns all that the steps changed."""
    generator = torch.Generator().manual_seed(1)
    image = torch.zeros(3, 2).requires_grad_()
    average = torch.zeros(3, 2)
    optimiser = OPTIMISERS[kind]([image])
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps, 1e-3)
    loop = Loop({"image": image, "average": average}, optimiser, schedule, generator)
    for step in loop.steps("following", steps, checkpoint, observer or Observer()):
        if step == stop:
            break
        optimiser.zero_grad()
        (image - torch.randn(3, 2, generator=generator)).square().sum().backward()
        optimiser.step()
        schedule.step()
        with torch.no_grad():
            average.lerp_(image, 0.1)
    return image.detach(), average, generator.get_state(), schedule.get_last_lr()


@pytest.mark.parametrize("kind", OPTIMISERS)
@pytest.mark.parametrize("stop", [1, 5, 11])
def test_a_loop_that_was_stopped_ends_with_the_same_bits(kind, stop):
    whole = optimise(kind, Checkpoint())
    checkpoint = Memory()
    optimise(kind, checkpoint, stop=stop)
    observer = Counting()
    resumed = optimise(kind, checkpoint, observer)
    for a, b in zip(whole[:3], resumed[:3], strict=True):
        assert torch.equal(a, b)
    assert whole[3] == resumed[3]
    assert observer.total == observer.done == 12
    assert len(checkpoint.states) == 12


def test_states_are_kept_now_and_then_only():
    class Rare(Memory):
        seconds = 1e9

    checkpoint = Rare()
    optimise("adam", checkpoint)
    assert checkpoint.states == []


@pytest.mark.parametrize("state", [b"", b"not a state", b"\x02" + bytes(7) + b"{}"])
def test_a_state_that_is_none_is_refused(state):
    with pytest.raises(ConfigError, match="cannot be taken up"):
        optimise("adam", Memory(state))
