import itertools
import math
import types

import pytest
import torch
from tests.conftest import facts_for, records_for, resized, without

from privset.data import Records
from privset.errors import ConfigError
from privset.privacy import Curator, Ledger, PrivacyBudget, VotesQuestion, Wards, seeded_noise
from privset.privacy.ward_steps import shown_to
from privset.privacy.wards import Guardian, places

FREE = PrivacyBudget(epsilon=math.inf)
SIZE = 40
FACTS = facts_for(SIZE)


def numbered(size=SIZE):
    """Records that show their number in the first pixel."""
    images = torch.zeros(size, 1, 8, 8, dtype=torch.uint8)
    images[:, 0, 0, 0] = torch.arange(size)
    return Records(images, torch.arange(size) % 3)


def blank(numbers):
    return {"seen": torch.zeros(len(numbers), SIZE), "steps": torch.zeros(len(numbers))}


def note(state, images, labels, public):
    """A ward that remembers which records it saw."""
    shown = ((images[:, 0, 0, 0] * 0.5 + 0.5) * 255).round()
    here = (shown[:, None] == torch.arange(SIZE)).any(0)
    return {"seen": torch.maximum(state["seen"], here.to(torch.float32)), "steps": state["steps"] + 1}


def guardian_of(records, *, seed=0, chunk=None):
    return Guardian(records.images, records.labels, resized(FACTS, len(records)), seeded_noise(seed), chunk)


def heard(guardian, wards, name="seen"):
    return torch.cat(list(guardian.hear(wards, lambda state, public: state[name], {})))


@pytest.mark.parametrize(("count", "batch", "chunk", "steps"), [(7, 3, None, 40), (7, 64, 100, 2), (200, 2, 640, 5)])
def test_every_record_is_in_one_shard_and_a_ward_sees_its_own_alone(count, batch, chunk, steps):
    guardian = guardian_of(numbered(), chunk=chunk)
    wards = guardian.appoint(count, blank, batch)
    for _ in range(steps):
        guardian.teach(wards, note, {})
    seen, taught = heard(guardian, wards), heard(guardian, wards, "steps")
    assert seen.sum(0).tolist() == [1.0] * SIZE
    assert torch.equal(taught, torch.where(seen.any(1), float(steps), 0.0))  # a ward without records stays as it began


def test_a_small_shard_is_gone_through_again_and_a_large_one_in_parts():
    guardian, batches = guardian_of(numbered()), []

    def watch(state, images, labels, public):
        return {"batch": ((images[:, 0, 0, 0] * 0.5 + 0.5) * 255).round()}

    wards = guardian.appoint(3, lambda numbers: {"batch": torch.full((len(numbers), 9), -1.0)}, 9)
    for _ in range(20):
        guardian.teach(wards, watch, {})
        batches.append(heard(guardian, wards, "batch"))
    assert all(len(set(row.tolist())) == 9 for batch in batches for row in batch)  # no record twice where 9 are there
    assert len({tuple(batch.flatten().tolist()) for batch in batches}) == 20
    few = guardian.appoint(60, lambda numbers: {"batch": torch.full((len(numbers), 9), -1.0)}, 9)
    guardian.teach(few, watch, {})
    shards = [set(row.tolist()) for row in heard(guardian, few, "batch")]
    assert {-1.0} in shards  # one without records
    assert sorted(number for shard in shards for number in shard - {-1.0}) == list(range(SIZE))


def shards_of(records, count=8):
    guardian = guardian_of(records)
    wards = guardian.appoint(count, blank, 64)
    guardian.teach(wards, note, {})
    return heard(guardian, wards)


def test_one_record_less_changes_one_shard_by_that_record_and_moves_no_other():
    # The last record is left out, so that the others draw the same shards from the same seed.
    before, after = shards_of(numbered()), shards_of(without(numbered(), SIZE - 1))
    changed = (before != after).nonzero().tolist()
    assert len(changed) == 1
    assert changed[0][1] == SIZE - 1


def test_shards_are_drawn_uniformly_and_anew_for_every_appointment():
    records = numbered()
    guardian = guardian_of(records)
    sizes = []
    for _ in range(100):
        wards = guardian.appoint(4, blank, 64)
        guardian.teach(wards, note, {})
        sizes.append(heard(guardian, wards).sum(1))
    table = torch.stack(sizes)
    assert (table.mean(0) - 10).abs().max() < 1.4
    assert float(table.var()) == pytest.approx(7.5, rel=0.25)  # binomial; equal pieces would have none


def test_only_chosen_wards_are_taught_and_heard():
    guardian = guardian_of(numbered())
    wards = guardian.appoint(5, blank, 4)
    guardian.teach(wards, note, {}, which=torch.tensor([3, 1]))
    assert heard(guardian, wards, "steps").tolist() == [0, 1, 0, 1, 0]
    (rows,) = guardian.hear(
        wards,
        lambda state, public: state["steps"] + public["more"],
        {"more": torch.ones(2)},
        which=torch.tensor([0, 3]),
    )
    assert rows.tolist() == [[1, 1], [2, 2]]


@pytest.mark.parametrize("which", [None, torch.arange(99, -1, -3)], ids=["all", "some"])
def test_a_ward_may_learn_in_place_and_one_without_records_stays_as_it_began_all_the_same(which):
    def in_place(state, images, labels, public):
        state["seen"].copy_(note(state, images, labels, public)["seen"])
        state["steps"] += 1
        return state

    states = []
    for learn in (note, in_place):
        guardian = guardian_of(numbered(), chunk=640)  # ten wards at once
        wards = guardian.appoint(100, blank, 2)
        for _ in range(3):
            guardian.teach(wards, learn, {}, which)
        states.append([heard(guardian, wards, name) for name in ("seen", "steps")])
    (seen, steps), found = states
    assert torch.equal(seen, found[0])
    assert torch.equal(steps, found[1])
    taught = torch.arange(100) if which is None else which
    assert set(steps[taught].tolist()) == {0.0, 3.0}


@pytest.mark.parametrize("which", [None, torch.arange(5)], ids=["all", "chosen"])
def test_what_a_ward_learns_may_be_made_of_other_parts_of_its_state(which):
    guardian = guardian_of(numbered(5 * SIZE))  # a shard without records is not to be expected

    def begin(numbers):
        places = torch.arange(4.0).view(2, 2).repeat(len(numbers), 1, 1)
        return {"a": places, "b": places + 4, "c": places + 8, "d": places + 12}

    def turn(state, images, labels, public):
        return {"a": state["b"], "b": state["a"], "c": state["c"].T, "d": state["d"]}

    wards = guardian.appoint(5, begin, 2)
    guardian.teach(wards, turn, {}, which)
    found = {name: heard(guardian, wards, name)[-1].flatten().tolist() for name in "abcd"}
    assert found == {"a": [4, 5, 6, 7], "b": [0, 1, 2, 3], "c": [8, 10, 9, 11], "d": [12, 13, 14, 15]}


def test_wards_are_begun_by_their_numbers_and_draw_random_numbers_of_their_own():
    guardian = guardian_of(numbered(), chunk=128)  # two at once
    wards = guardian.appoint(5, lambda numbers: {"w": torch.tensor([float(n) for n in numbers])}, 2)
    assert heard(guardian, wards, "w").tolist() == [0, 1, 2, 3, 4]
    state = torch.get_rng_state()
    guardian.teach(wards, lambda s, x, y, p: {"w": torch.rand(())}, {})
    assert len(set(heard(guardian, wards, "w").tolist())) == 5
    assert torch.equal(state, torch.get_rng_state())


def test_a_rehearsal_shows_how_the_first_ward_began_whatever_has_been_learned_since():
    guardian = guardian_of(numbered())
    wards = guardian.appoint(5, lambda numbers: {"w": torch.tensor([10.0 + n for n in numbers])}, 2)

    def learn(state, images, labels, public):
        state["w"] += 1
        return state

    guardian.teach(wards, learn, {})
    public = {"more": torch.tensor(1.0)}
    assert guardian.rehearse(wards, lambda state, public: state["w"] + public["more"], public).tolist() == [11]
    assert heard(guardian, wards, "w").tolist() == [11, 12, 13, 14, 15]


def test_the_same_code_is_rehearsed_once_unless_public_values_have_another_form():
    guardian = guardian_of(numbered())
    wards = guardian.appoint(5, blank, 2)
    rehearsed = []

    def say(state, public):
        rehearsed.append(public["x"].shape)
        return state["steps"] + public["x"]

    for size in (3, 3, 4, 4, 3):
        assert guardian.rehearse(wards, say, {"x": torch.ones(size)}).shape == (1, size)
    assert rehearsed == [(3,), (4,), (3,)]
    assert guardian.rehearse(wards, lambda state, public: state["steps"], {"x": torch.ones(3)}).shape == (1,)
    others = guardian.appoint(2, blank, 2)
    assert guardian.rehearse(others, say, {"x": torch.ones(3)}).shape == (1, 3)
    assert len(rehearsed) == 4
    guardian.rehearse(wards, say, {"x": torch.ones(3, dtype=torch.float64)})
    assert len(rehearsed) == 5


def test_batches_are_normalised_and_come_with_their_labels():
    guardian = guardian_of(numbered())
    wards = guardian.appoint(2, lambda numbers: {"w": torch.zeros(len(numbers))}, 8)

    def check(state, images, labels, public):
        shown = ((images[:, 0, 0, 0] * 0.5 + 0.5) * 255).round()
        return {"w": (shown % 3 == labels).all().to(torch.float32)}

    guardian.teach(wards, check, {})
    assert heard(guardian, wards, "w").tolist() == [1, 1]


def test_what_does_not_fit_is_refused():
    guardian, other = guardian_of(numbered()), guardian_of(numbered())
    with pytest.raises(ConfigError, match="at least one ward"):
        guardian.appoint(0, blank, 4)
    with pytest.raises(ConfigError, match="must give 3 states"):
        guardian.appoint(3, lambda numbers: {"w": torch.zeros(2)}, 4)
    wards = guardian.appoint(3, blank, 4)
    with pytest.raises(ConfigError, match="another curator"):
        other.teach(wards, note, {})
    with pytest.raises(ConfigError, match="as many, and of the same form"):
        guardian.teach(wards, lambda s, x, y, p: {"seen": s["seen"]}, {})


def test_nothing_of_a_ward_can_be_reached_from_the_curator_or_its_name():
    curator = Curator(records_for(FACTS), FACTS, Ledger(FREE), seeded_noise(0))
    wards = curator.appoint(3, blank, batch_size=4)
    curator.teach(wards, note, {})
    assert isinstance(wards, Wards)
    assert vars(wards) == {"count": 3, "batch_size": 4}
    for value in vars(curator).values():
        assert not isinstance(value, Guardian | torch.Tensor)
        assert not hasattr(value, "__self__")  # a bound method would lead to its owner
    assert curator._ledger.events == ()


def test_teaching_is_free_and_what_is_learned_is_heard_through_votes():
    curator = Curator(numbered(), FACTS, Ledger(FREE), seeded_noise(0))
    wards = curator.appoint(4, blank, batch_size=64)
    curator.teach(wards, note, {})
    question = VotesQuestion(kind="vectors", bound=100.0, noise_multiplier=0.0)
    assert curator.votes(question, wards, lambda state, public: state["seen"], {}).tolist() == [1.0] * SIZE
    assert curator._ledger.events == (question.event(1),)


def test_places_are_uniform_without_repeats_and_each_shard_has_its_own_dice():
    dice = torch.rand(3000, 5, generator=torch.Generator().manual_seed(0))
    sizes = torch.tensor([4, 1, 9]).repeat(1000)
    chosen = places(sizes, dice)
    assert torch.equal(chosen[sizes == 4, :4].sort(1).values, torch.arange(4).repeat(1000, 1))
    assert (chosen[sizes == 1] == 0).all()
    assert all(len(set(row)) == 5 for row in chosen[sizes == 9].tolist())
    for column in range(5):
        counts = torch.bincount(chosen[sizes == 9, column], minlength=9)
        assert float(((counts - 1000 / 9) ** 2 / (1000 / 9)).sum()) < 30  # chi squared, 8 degrees
    larger = sizes.clone()
    larger[2] = 40
    assert (places(larger, dice) != chosen).any(1).nonzero().flatten().tolist() == [2]


def test_every_ward_is_begun_however_the_memory_that_is_free_changes_meanwhile(monkeypatch):
    sizes = iter([4, 3, 2, 1] + [1] * 100)
    monkeypatch.setattr(Guardian, "_at_once", lambda self, wards: next(sizes))
    guardian, begun = guardian_of(numbered()), []
    guardian.appoint(10, lambda numbers: begun.extend(numbers) or blank(numbers), 2)
    assert begun == list(range(10))


@pytest.mark.parametrize(
    ("device", "chunk", "memory", "side", "batch", "expected"),
    [
        ("cpu", None, None, 28, 15, 64),
        ("cpu", 6400, None, 28, 200, 32),
        ("cuda", 6400, None, 28, 15, 100),
        ("cuda", None, 2**38, 28, 15, 1250),
        ("cuda", None, 2**38, 28, 100, 200),
        ("cuda", None, 2**30, 28, 15, 6),
        ("cuda", None, 2**30, 64, 15, 1),
        ("cuda", None, 0, 28, 15, 1),
    ],
)
def test_as_many_wards_are_looked_at_together_as_suit_the_device(
    device, chunk, memory, side, batch, expected, monkeypatch
):
    guardian = guardian_of(numbered(), chunk=chunk)
    images = types.SimpleNamespace(device=torch.device(device), shape=torch.Size([9, 1, side, side]))
    monkeypatch.setattr(guardian, "_images", images)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (None, memory))
    assert guardian._at_once(Wards(4000, batch)) == expected


@pytest.mark.parametrize("which", [None, torch.tensor([1, 2])], ids=["all", "some"])
def test_a_ward_that_would_change_while_it_speaks_is_refused(which):
    guardian = guardian_of(numbered())
    wards = guardian.appoint(5, blank, 2)

    def say(state, public):
        return state["steps"].add_(1)

    with pytest.raises(ConfigError, match="may not change while it speaks"):
        list(guardian.hear(wards, say, {}, which))
    with pytest.raises(ConfigError, match="may not change while it speaks"):
        guardian.rehearse(wards, say, {})


def test_parts_of_wards_that_say_something_of_another_form_are_not_heard():
    """Added up they would be spread over what the others said, and count several times."""
    guardian, turns = guardian_of(numbered(), chunk=128), itertools.count()  # two at once
    wards = guardian.appoint(5, blank, 2)

    def say(state, public):
        return state["steps"].expand(9 if next(turns) == 0 else 1, 4)

    with pytest.raises(ConfigError, match="all say something of the same form"):
        list(guardian.hear(wards, say, {}))


def test_wards_of_which_one_could_not_be_taught_are_heard_no_more():
    guardian = guardian_of(numbered())
    wards = guardian.appoint(5, blank, 2)

    def learn(state, images, labels, public):
        state["steps"] += 1
        return {"steps": state["steps"]}

    with pytest.raises(ConfigError, match="as many, and of the same form"):
        guardian.teach(wards, learn, {})
    with pytest.raises(ConfigError, match="dismissed since one could not be taught"):
        heard(guardian, wards, "steps")
    with pytest.raises(ConfigError, match="dismissed since one could not be taught"):
        guardian.teach(wards, note, {})


def test_wards_are_divided_as_when_they_were_appointed_whatever_a_card_has_left(monkeypatch):
    guardian = guardian_of(numbered(), chunk=640)
    wards, parts = guardian.appoint(25, blank, 2), []
    monkeypatch.setattr(guardian, "_at_once", lambda _: pytest.fail("asked again"))

    def say(state, public):
        return state["steps"]

    parts = [len(said) for said in guardian.hear(wards, say, {})]
    guardian.teach(wards, note, {})
    assert parts == [10, 10, 5]


def test_wards_without_records_are_shown_blank_images():
    guardian = guardian_of(numbered())
    wards = guardian.appoint(100, blank, 2)
    sizes = guardian._of(wards).sizes
    drawn = guardian._drawn(guardian._of(wards), wards, torch.arange(100))
    images, labels = shown_to(guardian._images, guardian._labels, FACTS, *drawn)
    assert bool((sizes == 0).any())
    assert not images[sizes == 0].any()
    assert not labels[sizes == 0].any()
