"""Lessons and hearings that a graphics card plays back come to the same as those it takes as they are written."""

import gc
import weakref

import pytest
import torch
from tests.conftest import facts_for, resized

from privset import recording
from privset.data import Records
from privset.errors import ConfigError
from privset.privacy import seeded_noise, wards
from privset.privacy.wards import Guardian

SIZE, COUNT = 40, 30  # about eight wards have no records
CPU = torch.device("cpu")
CARD = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a graphics card")


def guardian_of(device=CPU, chunk=640):
    """Ten wards at once, of records that show their number."""
    images = torch.zeros(SIZE, 1, 8, 8, dtype=torch.uint8, device=device)
    images[:, 0, 0, 0] = torch.arange(SIZE, device=device)
    records = Records(images, torch.arange(SIZE, device=device) % 3)
    return Guardian(records.images, records.labels, resized(facts_for(SIZE), SIZE), seeded_noise(0), chunk)


def begin(numbers):
    return {"told": torch.tensor([[100.0 * number] for number in numbers])}


def learn(state, images, labels, public):
    return state | {"told": state["told"] + public["weight"]}


def learn_by_dice(state, images, labels, public):
    return state | {"told": state["told"] + public["weight"] * torch.rand((), device=images.device)}


def say(state, public):
    return state["told"] + public["more"]


def say_by_dice(state, public):
    return state["told"] + torch.rand(1, device=state["told"].device)


def schedule(device=CPU):
    """Six times all wards, then some: their numbers, and what they are told when they learn and when they speak."""
    for number in range(12):
        chosen = torch.randperm(COUNT, generator=torch.Generator().manual_seed(number))[:12]
        told = {"weight": torch.tensor(1.0 + number, device=device)}
        yield None if number < 6 else chosen, told, {"more": torch.tensor(0.25 * number, device=device)}


def follow(guardian, lesson, words, device=CPU):
    """What wards say along the schedule, and what becomes of them."""
    known, said = guardian.appoint(COUNT, begin, 3), []
    for which, told, asked in schedule(device):
        guardian.teach(known, lesson, told, which)
        said.append(torch.cat(list(guardian.hear(known, words, asked, which))))
    return said, guardian._of(known).states["told"].clone()


@pytest.mark.parametrize("played", [False, True])
def test_wards_learn_and_say_what_they_are_told_this_time(played, monkeypatch, stand_in):
    if played:
        monkeypatch.setattr(wards, "recorded", stand_in)
    guardian = guardian_of()
    known = guardian.appoint(COUNT, begin, 3)
    stand_in.unmoved = tuple(guardian._of(known).states.values())
    taught, expected = (guardian._of(known).sizes > 0).float(), 100.0 * torch.arange(COUNT)
    assert 0 < int(taught.sum()) < COUNT
    for which, told, asked in schedule():
        rows = torch.arange(COUNT) if which is None else which
        guardian.teach(known, learn, told, which)
        expected[rows] += taught[rows] * told["weight"]
        backwards = None if which is None else rows.flip(0)
        said = torch.cat(list(guardian.hear(known, say, asked, backwards)))
        assert torch.equal(said[:, 0], expected[rows if which is None else rows.flip(0)] + asked["more"])
    assert stand_in.replays == (4 * (6 - recording.WRITTEN_STEPS) if played else 0)


def test_public_values_are_told_by_their_names(monkeypatch, stand_in):
    monkeypatch.setattr(wards, "recorded", stand_in)
    guardian = guardian_of()
    known = guardian.appoint(COUNT, begin, 3)

    def difference(state, public):
        return state["told"] * 0 + public["one"] - public["other"]

    one, other = torch.tensor(5.0), torch.tensor(3.0)
    for _ in range(4):
        assert set(
            torch.cat(list(guardian.hear(known, difference, {"one": one, "other": other}))).flatten().tolist()
        ) == {2.0}
    assert set(torch.cat(list(guardian.hear(known, difference, {"other": one, "one": other}))).flatten().tolist()) == {
        -2.0
    }


def test_each_ward_throws_its_own_dice_anew_each_time():
    guardian = guardian_of()
    known = guardian.appoint(COUNT, lambda numbers: {"told": torch.zeros(len(numbers), 1)}, 3)
    words = [torch.cat(list(guardian.hear(known, say_by_dice, {}))) for _ in range(3)]
    assert len(set(torch.cat(words).flatten().tolist())) == 3 * COUNT
    state = torch.get_rng_state()
    list(guardian.hear(known, say_by_dice, {}))
    guardian.rehearse(known, say_by_dice, {})
    assert torch.equal(state, torch.get_rng_state())


def test_words_are_no_window_into_a_state():
    guardian = guardian_of(chunk=64 * COUNT)
    known = guardian.appoint(COUNT, begin, 3)
    (said,) = guardian.hear(known, lambda state, public: state["told"], {})
    before = said.clone()
    guardian.teach(known, learn, {"weight": torch.ones(())})
    assert torch.equal(said, before)


def test_values_that_a_card_would_not_see_change_are_refused():
    guardian = guardian_of()
    known = guardian.appoint(COUNT, begin, 3)
    elsewhere = {"weight": torch.ones((), device="meta")}
    for ask in (guardian.teach, lambda *words: list(guardian.hear(*words))):
        with pytest.raises(ConfigError, match=r"must be tensors on cpu.*weight is not"):
            ask(known, learn, elsewhere)
    guardian.teach(known, learn, {"weight": torch.ones(())})  # no one was dismissed


def test_other_code_is_not_played_back_as_what_it_follows(monkeypatch, stand_in):
    monkeypatch.setattr(wards, "recorded", stand_in)
    guardian = guardian_of()
    known = guardian.appoint(COUNT, begin, 3)
    stand_in.unmoved = tuple(guardian._of(known).states.values())

    def twice(state, images, labels, public):
        return state | {"told": state["told"] + 2}

    for code, added in ((learn, 1), (twice, 2), (learn, 1)):
        before = torch.cat(list(guardian.hear(known, lambda state, public: state["told"], {})))
        for _ in range(4):
            guardian.teach(known, code, {"weight": torch.ones(())})
        after = torch.cat(list(guardian.hear(known, lambda state, public: state["told"], {})))
        taught = guardian._of(known).sizes > 0
        assert set((after - before)[taught].flatten().tolist()) == {4.0 * added}


def test_states_are_gone_with_their_guardian_at_once():
    gc.disable()  # a card has no room for what waits to be collected
    try:
        guardian = guardian_of()
        known = guardian.appoint(COUNT, begin, 3)
        guardian.teach(known, learn, {"weight": torch.ones(())})
        list(guardian.hear(known, say, {"more": torch.ones(())}))
        state = weakref.ref(guardian._of(known).states["told"])
        del guardian
        assert state() is None
    finally:
        gc.enable()


@CARD
@pytest.mark.parametrize("played", [False, True])
def test_on_a_card_the_same(played, monkeypatch):
    """By hand, for what is told; and with dice, against steps that are taken as they are written."""
    device = torch.device("cuda")
    if not played:
        monkeypatch.setattr(recording, "WRITTEN_STEPS", 1000)
    guardian = guardian_of(device)
    said, states = follow(guardian, learn, say, device)
    (known,) = guardian._households
    taught, expected = (guardian._of(known).sizes > 0).float(), 100.0 * torch.arange(COUNT)
    for (which, told, asked), words in zip(schedule(), said, strict=True):
        rows = torch.arange(COUNT) if which is None else which
        expected[rows] += taught[rows] * told["weight"]
        assert torch.equal(words[:, 0].cpu(), expected[rows] + asked["more"])
    assert torch.equal(states[:, 0].cpu(), expected)


@CARD
def test_on_a_card_dice_are_those_of_steps_as_they_are_written(monkeypatch):
    device = torch.device("cuda")
    played, states = follow(guardian_of(device), learn_by_dice, say_by_dice, device)
    monkeypatch.setattr(recording, "WRITTEN_STEPS", 1000)
    written, found = follow(guardian_of(device), learn_by_dice, say_by_dice, device)
    assert all(torch.equal(one, other) for one, other in zip(played, written, strict=True))
    assert torch.equal(states, found)
    assert len({float(words[0, 0]) for words in played}) == len(played)
