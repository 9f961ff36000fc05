"""What every method promises that keeps its set along the run: made of the first answers, the same after a stop."""

import dataclasses

import pytest
import torch
from tests.conftest import TINY, facts_for, records_for
from tests.contract.test_resuming import BUDGET, content, dataset, kill

from privset.errors import ConfigError, ReleaseError
from privset.methods import METHODS, Checkpoint, Psg, SetMethod
from privset.pipeline import generate
from privset.privacy import Curator, Ledger, PrivacyBudget, seeded_noise
from privset.release import verify

ABLE = [name for name, kind in METHODS.items() if kind.keeps_snapshots]


@pytest.fixture(params=ABLE)
def method(request):
    return METHODS[request.param](TINY[request.param])


@pytest.fixture(autouse=True)
def _keep_every_state(monkeypatch):
    monkeypatch.setattr(Checkpoint, "seconds", 0.0)


def run(method, out, **options):
    return generate(dataset(), method=method, budget=BUDGET, out=out, noise=seeded_noise(1), **options)


def states(release):
    assert release.set.snapshots is not None
    return {answers: images.numpy().tobytes() for answers, images in release.set.snapshots.images.items()}


def test_gradient_matching_keeps_snapshots():
    assert ABLE == ["psg", "psg-prior"]


def test_when_they_are_taken_follows_from_the_plan_alone(method):
    plan = method.plan(facts_for(40), BUDGET)
    assert plan.snapshots == ()
    assert plan.questions == 8
    assert method.with_snapshots(plan, 4).snapshots == (2, 4, 6, 8)  # two answers at each point
    assert method.with_snapshots(plan, 3).snapshots == (2, 4, 8)
    assert method.with_snapshots(plan, 1).snapshots == (8,)
    assert method.with_snapshots(plan, 0) == plan
    for odd in (5, -1, 2.0):
        with pytest.raises(ConfigError, match="snapshots must be a number from 0 to 4"):
            method.with_snapshots(plan, odd)


def test_on_the_paper_s_scale_they_are_every_tenth_part_and_never_too_many():
    method = Psg(Psg.preset("paper", per_class=10, epsilon=10.0))
    plan = method.plan(facts_for(60_000, classes=10, side=28), PrivacyBudget(epsilon=10, accountant="rdp"))
    assert method.with_snapshots(plan, 10).snapshots == tuple(range(10_000, 100_001, 10_000))
    with pytest.raises(ConfigError, match="from 0 to 100 here: psg takes 10,000"):
        method.with_snapshots(plan, 101)


def test_they_change_nothing_else_and_the_last_is_the_set(tmp_path, method):
    plain, with_them = run(method, tmp_path / "plain"), run(method, tmp_path / "with", snapshots=4)
    assert content(plain) == content(with_them)
    assert plain.certificate.events == with_them.certificate.events
    assert plain.certificate.guarantee == with_them.certificate.guarantee
    found = states(with_them)
    assert list(found) == [2, 4, 6, 8]
    assert len(set(found.values())) == 4
    assert found[8] == with_them.set.images.numpy().tobytes()
    assert verify(with_them.path).ok
    assert plain.set.snapshots is None
    assert "snapshots" not in (plain.path / "certificate.json").read_text()


class Forgetful(Curator):
    """Answers with zeros after a number of answers."""

    def gradient(self, question, loss, parameters, *, draws=1, transform=None):
        self.given = getattr(self, "given", 0) + draws
        answers = super().gradient(question, loss, parameters, draws=draws, transform=transform)
        if self.given <= 4:
            return answers
        return [{name: torch.zeros_like(value) for name, value in answer.items()} for answer in answers]


def test_each_is_a_function_of_the_answers_up_to_there(method):
    """So what they cost is what these cost: answers that come later do not reach it."""
    facts = facts_for(40)
    plan = method.with_snapshots(method.plan(facts, BUDGET), 4)
    made = [
        method.run(kind(records_for(facts), facts, Ledger(BUDGET), seeded_noise(1)), plan).snapshots
        for kind in (Curator, Forgetful)
    ]
    same = {answers: torch.equal(made[0][answers], made[1][answers]) for answers in plan.snapshots}
    assert same == {2: True, 4: True, 6: False, 8: False}


@pytest.mark.parametrize("step", [3, 8])
def test_a_run_that_was_killed_has_the_same_ones(tmp_path, method, step):
    whole, out = run(method, tmp_path / "whole", snapshots=4), tmp_path / "killed"
    kill(method, out, step, snapshots=4)
    again = run(method, out, snapshots=4)
    assert states(again) == states(whole)
    assert (out / "snapshots.safetensors").read_bytes() == (whole.path / "snapshots.safetensors").read_bytes()
    assert verify(out).ok


def test_another_number_of_them_is_another_run_and_without_them_a_run_is_what_it_was(tmp_path, method):
    kill(method, tmp_path / "set", 4, snapshots=4)
    for other, words in ((2, "snapshots was 4 and is 2"), (0, "snapshots was 4 and is None")):
        with pytest.raises(ReleaseError, match=words):
            run(method, tmp_path / "set", snapshots=other)
    kill(method, tmp_path / "plain", 4)
    assert "snapshots" not in (tmp_path / "plain.unfinished" / "run.json").read_text()


@pytest.mark.parametrize("name", [name for name in METHODS if name not in ABLE])
def test_who_has_none_says_so_and_nothing_is_spent(tmp_path, name):
    method = METHODS[name](TINY[name])
    words = "has no set that could be kept.*use psg or psg-prior" if isinstance(method, SetMethod) else "a classifier"
    with pytest.raises(ConfigError, match=words):
        generate(dataset(), method=method, budget=BUDGET, out=tmp_path / "set", snapshots=2)
    assert list(tmp_path.iterdir()) == []


def test_too_many_cost_nothing(tmp_path, method):
    with pytest.raises(ConfigError, match="takes 4 step"):
        generate(dataset(), method=method, budget=BUDGET, out=tmp_path / "set", snapshots=5)
    assert list(tmp_path.iterdir()) == []


def test_floats_are_kept_as_floats(tmp_path, method):
    floats = type(method)(dataclasses.replace(method.config, keep_floats=True))
    release = run(floats, tmp_path / "set", snapshots=2)
    assert all(one.set.keeps_floats for one in release.along())
    assert verify(release.path).ok
