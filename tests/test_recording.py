import gc
import weakref

import pytest
import torch

from privset.privacy.chacha import CounterStream
from privset.recording import WRITTEN_STEPS, Beside, _nothing_collected, recorded, settled

CPU = torch.device("cpu")
CARD = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a graphics card")


def test_a_recording_on_a_processor_plays_back_what_is_drawn_anew(stand_in):
    plain, played = CounterStream(bytes(32), position=7), CounterStream(bytes(32), position=7)

    def drawn(stream, values):
        return values + stream.normals(len(values), CPU) + stream.chosen(40, 0.5, CPU).sum()

    take = stand_in(lambda values: drawn(played, values), CPU, [played])
    found = []
    for number in range(4 * WRITTEN_STEPS):
        for size in (3, 20):  # each has a recording of its own
            argument = torch.full((size,), float(number), dtype=torch.float64)
            found.append(take(argument).clone())
            assert torch.equal(found[-1], drawn(plain, argument))
            assert played.position == plain.position
        assert torch.equal(played.words(3, CPU), plain.words(3, CPU))
    assert stand_in.replays == 2 * (4 * WRITTEN_STEPS - WRITTEN_STEPS)
    assert len({tuple((one - one[0]).tolist()) for one in found}) == len(found)


def test_a_recording_follows_a_stream_that_becomes_another(stand_in):
    played = CounterStream(bytes(32))
    take = stand_in(lambda values: values + played.words(3, CPU), CPU, [played])
    for _ in range(WRITTEN_STEPS + 2):
        take(torch.zeros(3, dtype=torch.int32))
    played.become(CounterStream(bytes(range(32)), position=9))
    found = take(torch.zeros(3, dtype=torch.int32))
    assert torch.equal(found, CounterStream(bytes(range(32)), position=9).words(3, CPU))


def test_a_recording_that_fails_leaves_its_streams_as_they_were(stand_in):
    played, fails = CounterStream(bytes(32)), []

    def step(values):
        drawn = values + played.words(3, CPU)
        if fails:
            raise ValueError("no such thing")
        return drawn

    take, argument = stand_in(step, CPU, [played]), torch.zeros(3, dtype=torch.int32)
    for _ in range(WRITTEN_STEPS):
        take(argument)
    fails.append(True)
    with pytest.raises(ValueError, match="no such thing"):
        take(argument)
    fails.clear()
    rest = CounterStream(bytes(32), position=WRITTEN_STEPS)
    assert torch.equal(played.words(3, CPU), rest.words(3, CPU))
    for _ in range(3):
        assert torch.equal(take(argument), rest.words(3, CPU))


def test_a_recording_waits_for_the_last_time_where_that_was_on_another_stream(stand_in, monkeypatch):
    take = stand_in(lambda values: values + 1, CPU, [])
    for _ in range(WRITTEN_STEPS + 2):
        take(torch.zeros(1))
    assert not stand_in.stream.waited
    other = type(stand_in.stream)()
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: other)
    take(torch.zeros(1))
    take(torch.zeros(1))
    assert other.waited == [stand_in.stream]


def test_what_draws_from_a_stream_that_was_not_named_cannot_be_recorded(monkeypatch):
    class Card:
        type = "cuda"

    stream = CounterStream(bytes(32))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(RuntimeError, match="the same numbers each time"):
        stream.words(3, Card())  # type: ignore[arg-type]
    assert stream.position == 0


@CARD
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")
def test_on_a_card_neither():
    device, stream = torch.device("cuda"), CounterStream(bytes(32))
    take = recorded(lambda values: values + stream.normals(3, device), device)
    argument = torch.zeros(3, dtype=torch.float64, device=device)
    for _ in range(WRITTEN_STEPS):
        take(argument)
    with pytest.raises(RuntimeError, match="the same numbers each time"):
        take(argument)


def test_on_a_processor_a_step_is_taken_as_it_is():
    taken = []

    def step(argument):
        taken.append(argument)
        return argument + 1

    take = recorded(step, torch.device("cpu"))
    assert take is step
    assert float(take(torch.ones(()))) == 2
    assert len(taken) == 1


class Walk:
    """A state that steps change in place, by gradients and by draws."""

    def __init__(self):
        self.device = torch.device("cuda")
        self.place, self.slope = torch.ones(4, device=self.device), torch.zeros(4, device=self.device)
        self.rate = torch.zeros((), device=self.device)
        self.generator = torch.Generator(self.device).manual_seed(3)
        self.written = 0

    def step(self, chosen):
        self.written += 1
        drawn = torch.rand(4, generator=self.generator, device=self.device)
        loss = self.follow(lambda place: ((place * drawn).index_select(0, chosen) - 1).square().sum())
        self.place -= self.rate * self.slope
        self.slope.zero_()
        return loss

    def follow(self, loss):
        place = self.place.detach().requires_grad_()
        value = loss(place)
        self.slope += torch.autograd.grad(value, place)[0]
        return value.detach()


class Circle:
    """Freed by a collection alone, as what refers to itself is; on a card, that ends the making of a recording."""

    def __init__(self):
        self.itself = self


def test_while_a_step_is_recorded_nothing_is_freed_but_by_its_own_name():
    before = weakref.ref(Circle())
    with _nothing_collected():
        assert before() is None
        during = weakref.ref(Circle())
        kept = [[] for _ in range(10**5)]  # enough to be collected for
        assert during() is not None
        del kept
    gc.collect()
    assert during() is None
    assert gc.isenabled()


@CARD
def test_a_recorded_step_does_what_the_step_does():
    plain, played = Walk(), Walk()
    take = recorded(played.step, played.device, [played.generator])
    choices = [[0, 1], [2, 3], [1], [3, 0], [2, 1], [0], [1, 3], [3], [2], [0, 3]]
    for number, choice in enumerate(choices):
        chosen = torch.tensor(choice, device=plain.device)
        for walk in (plain, played):
            walk.rate.fill_(0.1 / (1 + number))  # changed in place, so a recording sees it
            walk.follow(lambda place: 0.1 * place.square().sum())  # by the side, and never recorded
        expected, found = plain.step(chosen), take(chosen)
        assert torch.allclose(found, expected, atol=1e-6)
        assert torch.allclose(played.place, plain.place, atol=1e-6)
    assert plain.written == len(choices)
    assert played.written == 2 * (WRITTEN_STEPS + 1)  # for each of two shapes, and once more to record it


@CARD
def test_a_recording_has_memory_of_its_own_for_its_argument():
    take = recorded(lambda values: values * 2, torch.device("cuda"))
    for number in range(WRITTEN_STEPS + 3):
        argument = torch.full((3,), float(number), device="cuda")
        assert torch.equal(take(argument).cpu(), torch.full((3,), 2.0 * number))
        assert torch.equal(argument.cpu(), torch.full((3,), float(number)))


@CARD
def test_another_dtype_has_a_recording_of_its_own():
    take = recorded(lambda values: values / 3, torch.device("cuda"))
    for dtype in (torch.float32, torch.float64):
        for _ in range(WRITTEN_STEPS + 2):
            found = take(torch.ones(3, dtype=dtype, device="cuda"))
            assert torch.equal(found.cpu(), torch.ones(3, dtype=dtype) / 3)


@CARD
def test_what_is_drawn_from_a_counted_stream_goes_on_where_it_stood():
    device = torch.device("cuda")
    plain, played = CounterStream(bytes(32)), CounterStream(bytes(32))

    def drawn(stream):
        return stream.normals(20, device) + stream.normals(3, device).sum()

    take = recorded(lambda values: values + drawn(played), device, [played])
    for number in range(WRITTEN_STEPS + 5):
        argument = torch.full((20,), float(number), dtype=torch.float64, device=device)
        if number % 2:
            assert torch.equal(played.words(3, device), plain.words(3, device))
        assert torch.equal(take(argument), argument + drawn(plain))
        assert played.position == plain.position


@CARD
def test_work_beside_is_there_once_it_is_joined_also_when_it_is_played_back():
    device = torch.device("cuda")
    beside, total = Beside(device), torch.zeros((), device=device)

    def step(values):
        with beside.begin():
            aside = values
            for _ in range(50):
                aside = aside @ values
        own = values.sum()
        beside.join(aside)
        return total.add_(aside[0, 0] + own)

    take, expected = recorded(step, device), 0.0
    for number in range(WRITTEN_STEPS + 5):
        values = torch.eye(500, device=device) * (1 + number % 2)
        expected += float((1 + number % 2) ** 51 + 500 * (1 + number % 2))
        assert float(take(values)) == pytest.approx(expected, rel=1e-5)


def test_on_a_processor_work_beside_is_done_at_once():
    beside, done = Beside(torch.device("cpu")), []
    with beside.begin():
        done.append(1)
    assert done == [1]
    beside.join(torch.zeros(1))


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_a_process_waits_for_its_card_before_it_ends_even_if_it_fails(kind, monkeypatch):
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    device = torch.device(kind)

    def fail():
        with settled(device):
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert waited == ([device] if kind == "cuda" else [])
