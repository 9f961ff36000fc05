import contextlib
from types import SimpleNamespace

import pytest
import safetensors.torch
import torch

from privset.errors import ConfigError
from privset.methods.checkpoint import Checkpoint, Stages
from privset.observer import Observer, Observers


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


def optimise(checkpoint, observer=None, stop=None, steps=12):
    """Follow random targets in two loops, the second from where the first ended; all that the steps changed."""
    generator = torch.Generator().manual_seed(1)
    stages = Stages(generator, checkpoint, observer or Observer())
    found = {}
    for name in ("walking", "running"):
        place = torch.full((3, 2), float(sum(value.sum() for value in found.values())))
        speed = torch.zeros(3, 2)
        for step in stages.loop(name, steps, {"place": place, "speed": speed}):
            if (name, step) == stop:
                return found
            speed.lerp_(torch.randn(3, 2, generator=generator) - place, 0.3)
            place += speed
        found |= {f"{name} place": place, f"{name} speed": speed}
    return found | {"generator": generator.get_state()}


class Leaving(Counting):
    """Wants to stop once so many steps are being done."""

    def __init__(self, after):
        super().__init__()
        self.after = after

    def patience(self):
        return contextlib.nullcontext(lambda: self.done + 1 >= self.after)


@pytest.mark.parametrize("after", [1, 5, 12, 14])
def test_who_wants_to_stop_waits_for_the_end_of_a_step_whose_state_is_kept(after):
    whole, checkpoint = optimise(Checkpoint()), Memory()
    checkpoint.seconds = 1e9  # no state is due but that one, and those of loops that have ended
    with pytest.raises(KeyboardInterrupt):
        optimise(checkpoint, Observers(Observer(), Leaving(after)))
    assert len(checkpoint.states) == (1 if after < 12 else 2)
    found = optimise(checkpoint)
    assert all(torch.equal(value, found[name]) for name, value in whole.items())


@pytest.mark.parametrize("stop", [("walking", 1), ("walking", 11), ("running", 0), ("running", 5), ("running", 11)])
def test_a_run_that_was_stopped_ends_with_the_same_bits(stop):
    whole = optimise(Checkpoint())
    checkpoint = Memory()
    optimise(checkpoint, stop=stop)
    observer = Counting()
    resumed = optimise(checkpoint, observer)
    assert set(whole) == set(resumed)
    for name, value in whole.items():
        assert torch.equal(value, resumed[name]), name
    assert observer.total == 12
    assert observer.done == 24  # steps of before count as done
    assert len(checkpoint.states) == 24


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_steps_that_came_apart_are_stopped_and_the_last_good_state_is_left(value):
    checkpoint, place, count = Memory(), torch.zeros(3), torch.zeros((), dtype=torch.int64)

    def walk():
        for step in Stages(torch.Generator(), checkpoint, Observer()).loop("walking", 9, {"place": place, "n": count}):
            place[1] = value if step == 3 else step
            count.add_(1)

    with pytest.raises(ConfigError, match=r"walking: after 4 steps place have .* not finite.*again.*costs nothing"):
        walk()
    assert len(checkpoint.states) == 3
    assert safetensors.torch.load(checkpoint.states[-1])["walking/place"].tolist() == [0, 2, 0]


def test_steps_that_came_apart_before_any_state_was_kept_are_not_said_to_go_on():
    place = torch.zeros(3)

    def walk():
        for _ in Stages(torch.Generator(), Memory(), Observer()).loop("walking", 9, {"place": place}):
            place[1] = float("nan")

    with pytest.raises(ConfigError, match=r"after 1 steps place .*None was kept before.*lower the learning rates"):
        walk()


def test_a_kept_state_that_is_not_finite_is_not_taken_up():
    place = torch.tensor([0.0, float("nan")])
    generator = torch.Generator()
    state = safetensors.torch.save(
        {"walking/place": place, "walking/generator": generator.get_state()}, metadata={"steps": '{"walking": 2}'}
    )
    for total in (2, 9):  # of a loop that has ended, and of one that has not
        stages = Stages(generator, Memory(state), Observer())
        with pytest.raises(ConfigError, match=r"cannot be taken up \(place have values that are not finite\)"):
            next(stages.loop("walking", total, {"place": torch.zeros(2)}))


def test_states_are_kept_now_and_then_and_at_the_end_of_a_loop():
    class Rare(Memory):
        seconds = 1e9

    checkpoint = Rare()
    optimise(checkpoint)
    assert len(checkpoint.states) == 2


def test_a_state_that_takes_long_to_keep_is_kept_more_rarely(monkeypatch):
    clock, kept = [0.0], []
    monkeypatch.setattr("privset.methods.checkpoint.time", SimpleNamespace(monotonic=lambda: clock[0]))

    class Slow(Checkpoint):
        def save(self, state):
            kept.append(clock[0])
            clock[0] += 3.0

    for _ in Stages(torch.Generator(), Slow(), Observer()).loop("walking", 150, {"place": torch.zeros(5)}):
        clock[0] += 1.0
    assert kept == [10.0, 73.0, 136.0, 159.0]  # after the first, 60 seconds apart; and at the end


def test_of_a_loop_that_has_ended_only_the_outcome_is_kept():
    def run(checkpoint, observer=None):
        generator = torch.Generator().manual_seed(1)
        stages = Stages(generator, checkpoint, observer or Observer())
        place, speed = torch.zeros(3), torch.zeros(3)
        for name in ("walking", "running"):
            for _ in stages.loop(name, 3, {"place": place, "speed": speed}, outcome=("place",)):
                speed.lerp_(torch.randn(3, generator=generator) - place, 0.3)
                place += speed
            speed.zero_()  # of no use any more
        return place

    whole, checkpoint = run(Checkpoint()), Memory()
    run(checkpoint)
    during = {"place", "speed", "generator"}
    ended = {"walking/place", "walking/generator"}
    kept = [set(safetensors.torch.load(state)) for state in checkpoint.states]
    assert kept == [
        *[{f"walking/{key}" for key in during}] * 2,
        ended,
        *[ended | {f"running/{key}" for key in during}] * 2,
        ended | {"running/place", "running/generator"},
    ]
    for state in checkpoint.states:
        assert torch.equal(run(Memory(state)), whole)


@pytest.mark.parametrize("state", [b"", b"not a state", b"\x02" + bytes(7) + b"{}"])
def test_a_state_that_is_none_is_refused(state):
    with pytest.raises(ConfigError, match="cannot be taken up"):
        optimise(Memory(state))


def test_a_state_of_something_else_is_refused():
    checkpoint = Memory()
    stages = Stages(torch.Generator(), checkpoint, Observer())
    for _ in stages.loop("walking", 1, {"place": torch.zeros(5)}):
        pass
    with pytest.raises(ConfigError, match="cannot be taken up"):
        optimise(checkpoint)


def test_steps_of_parts_are_told_as_rounds():
    """Parts of a step come together, so that an observer takes the time at its end."""

    class Listening(Observer):
        def __init__(self):
            self.told = []

        def step(self, count=1, **values):
            self.told.append(count)

        def lap(self):
            self.told.append("lap")

    def run(checkpoint, observer, parts):
        stages = Stages(torch.Generator(), checkpoint, observer)
        for _ in stages.loop("walking", 3, {"place": torch.zeros(2)}, parts=parts):
            for _ in range(parts or 0):
                stages.part()

    checkpoint, told, again, plain = Memory(), Listening(), Listening(), Listening()
    run(checkpoint, told, 2)
    run(Memory(checkpoint.states[0]), again, 2)
    run(Memory(), plain, None)
    assert told.told == ["lap", 1, 1, "lap", 1, 1, "lap", 1, 1, "lap"]
    assert again.told == [2, "lap", 1, 1, "lap", 1, 1, "lap"]
    assert plain.told == [1, 1, 1]
