"""Lessons and hearings that a graphics card plays back come to the same as those it takes as they are written."""

import gc
import weakref

import pytest
import torch
from tests.conftest import facts_for, resized

from privset import recording
from privset.data import Records
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
    return {"sum": torch.zeros(len(numbers)), "steps": torch.zeros(len(numbers), 2)}


def learn(state, images, labels, public):
    state["steps"] += 1
    shown = (images[:, 0, 0, 0] * 0.5 + 0.5).mul(255).round() + labels
    return state | {"sum": state["sum"] * 0.5 + shown.sum() * public["weight"]}


def learn_by_dice(state, images, labels, public):
    return state | {"sum": learn(state, images, labels, public)["sum"] + torch.rand((), device=images.device)}


def say(state, public):
    return torch.stack([state["sum"] * public["weight"], state["steps"][0] + public["more"][0]])


def follow(guardian, lesson, *, turns=6, device=CPU, unmoved=None):
    """All lessons and words of a schedule in which all learn, and some do."""
    known = guardian.appoint(COUNT, begin, 3)
    if unmoved is not None:
        unmoved(tuple(guardian._of(known).states.values()))
    said = []
    for number in range(turns):
        public = {"weight": torch.tensor(1.0 + number, device=device), "more": torch.ones(2, device=device) * number}
        guardian.teach(known, lesson, {"weight": public["weight"]})
        said.append(torch.cat(list(guardian.hear(known, say, public))))
    for number in range(turns):
        public = {"weight": torch.tensor(1.0 + number, device=device), "more": torch.ones(2, device=device) * number}
        which = torch.randperm(COUNT, generator=torch.Generator().manual_seed(number))[:12]
        guardian.teach(known, lesson, {"weight": public["weight"]}, which)
        said.append(torch.cat(list(guardian.hear(known, say, public, which.flip(0)))))
    return [one.clone() for one in said], {n: v.clone() for n, v in guardian._of(known).states.items()}


def test_what_is_played_back_is_what_is_written(monkeypatch, stand_in):
    words, states = follow(guardian_of(), learn)
    monkeypatch.setattr(wards, "recorded", stand_in)
    played, found = follow(guardian_of(), learn, unmoved=lambda values: setattr(stand_in, "unmoved", values))
    assert all(torch.equal(one, other) for one, other in zip(words, played, strict=True))
    assert all(torch.equal(states[name], found[name]) for name in states)
    assert stand_in.replays == 4 * (6 - recording.WRITTEN_STEPS)  # of lessons and of words, of all and of some
    assert 0.0 in states["steps"][:, 0].tolist()  # without records


def test_other_code_is_not_played_back_as_what_it_follows(monkeypatch, stand_in):
    monkeypatch.setattr(wards, "recorded", stand_in)
    guardian = guardian_of()
    known = guardian.appoint(COUNT, begin, 3)
    stand_in.unmoved = tuple(guardian._of(known).states.values())

    def twice(state, images, labels, public):
        return state | {"steps": state["steps"] + 2}

    for code, added in ((learn, 1), (twice, 2), (learn, 1)):
        before = torch.cat(list(guardian.hear(known, lambda state, public: state["steps"], {})))
        for _ in range(4):
            guardian.teach(known, code, {"weight": torch.ones(())})
        after = torch.cat(list(guardian.hear(known, lambda state, public: state["steps"], {})))
        taught = guardian._of(known).sizes > 0
        assert set((after - before)[taught].flatten().tolist()) == {4.0 * added}


def test_states_are_gone_with_their_guardian_at_once():
    gc.disable()  # a card has no room for what waits to be collected
    try:
        guardian = guardian_of()
        known = guardian.appoint(COUNT, begin, 3)
        guardian.teach(known, learn, {"weight": torch.ones(())})
        list(guardian.hear(known, say, {"weight": torch.ones(()), "more": torch.ones(2)}))
        state = weakref.ref(guardian._of(known).states["sum"])
        del guardian
        assert state() is None
    finally:
        gc.enable()


@CARD
@pytest.mark.parametrize("lesson", [learn, learn_by_dice], ids=["", "by dice"])
def test_on_a_card_what_is_played_back_is_what_is_written(monkeypatch, lesson):
    device = torch.device("cuda")
    words, states = follow(guardian_of(device), lesson, device=device)
    monkeypatch.setattr(recording, "WRITTEN_STEPS", 1000)
    written, found = follow(guardian_of(device), lesson, device=device)
    assert all(torch.equal(one, other) for one, other in zip(words, written, strict=True))
    assert all(torch.equal(states[name], found[name]) for name in states)
    assert len(set(states["sum"].tolist())) > COUNT / 2
