"""What methods tell an observer, and that telling changes nothing."""

import pytest
import torch
from tests.conftest import TINY, facts_for, records_for

from privset.data import Dataset
from privset.methods import Moments, TrainingMethod
from privset.observer import Observer, Observers
from privset.pipeline import generate, measure, train
from privset.privacy import PrivacyBudget, Standing, seeded_noise

BUDGET = PrivacyBudget(epsilon=5.0, accountant="rdp")


def dataset():
    facts = facts_for(40)
    return Dataset(facts, records_for(facts), None)


class Watcher(Observer):
    """Looks at everything, at every step."""

    def __init__(self):
        self.phases, self.steps, self.spendings, self.glimpses = [], 0, [], []

    def phase(self, name, total):
        self.phases.append(name)

    def step(self, count=1, **values):
        self.steps += count

    def spent(self, epsilon, budget):
        self.spendings.append((epsilon, budget))

    def show(self, look):
        assert self.spendings, "something is shown that was not paid for"
        glimpse = look()
        values = {name: float(value) for name, value in glimpse.values.items()}
        self.glimpses.append((glimpse.images.clone(), glimpse.labels.clone(), values))


def make(method, out, **options):
    """A set, or a classifier."""
    by = train if isinstance(method, TrainingMethod) else generate
    return by(dataset(), method=method, budget=BUDGET, out=out, **options)


def test_every_method_shows_its_set_and_being_watched_changes_nothing(tiny_method, tmp_path, monkeypatch):
    monkeypatch.setattr(Standing, "seconds", 0.0)  # a state that is shown only once it is kept is kept at every step
    watcher = Watcher()
    watched, alone = (
        make(tiny_method, tmp_path / name, noise=seeded_noise(1), observer=observer)
        for name, observer in (("watched", watcher), ("alone", None))
    )
    assert watched.certificate.contents == alone.certificate.contents  # digests of set or weights, among others
    if isinstance(tiny_method, TrainingMethod):
        assert not watcher.glimpses  # there is no set to show
        return
    assert watcher.glimpses
    for images, labels, values in watcher.glimpses:
        assert images.shape[1:] == (1, 8, 8)
        assert labels.shape == images.shape[:1]
        assert set(labels.tolist()) == {0, 1, 2}
        assert images.isfinite().all()
        assert all(value == value for value in values.values())
    first, last = watcher.glimpses[0][0], watcher.glimpses[-1][0]
    assert first.shape != last.shape or not torch.equal(first, last)


def test_the_budget_spent_is_told_when_it_is_charged(tiny_method, tmp_path):
    watcher = Watcher()
    made = make(tiny_method, tmp_path / "made", observer=watcher)
    spendings = [epsilon for epsilon, _ in watcher.spendings]
    assert spendings == sorted(spendings)
    assert spendings[-1] == pytest.approx(made.certificate.guarantee.epsilon_spent)
    assert {budget for _, budget in watcher.spendings} == {5.0}


def test_a_run_that_is_taken_up_tells_what_it_had_spent(tmp_path):
    class Killed(BaseException):
        pass

    class Killer(Observer):
        def step(self, count=1, **values):
            raise Killed

    method, watcher = Moments(TINY["moments"]), Watcher()
    with pytest.raises(Killed):
        measure(dataset(), method=method, budget=BUDGET, out=tmp_path / "stats", observer=Killer())
    made = measure(dataset(), method=method, budget=BUDGET, out=tmp_path / "stats", observer=watcher)
    (told,) = {epsilon for epsilon, _ in watcher.spendings}
    assert told == pytest.approx(made.certificate.guarantee.epsilon_spent)


def test_several_observers_are_told_the_same(tiny_method, tmp_path):
    one, other = Watcher(), Watcher()
    make(tiny_method, tmp_path / "made", observer=Observers(one, other))
    assert one.phases == other.phases
    assert one.steps == other.steps > 0
    assert one.spendings == other.spendings
    assert len(one.glimpses) == len(other.glimpses)
