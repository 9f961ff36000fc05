import dataclasses
import math

import pytest
import torch
from tests.conftest import TINY, facts_for, records_for

import privset
from privset.data import Dataset
from privset.errors import BudgetError, ConfigError, PrivsetError, ReleaseError
from privset.methods import METHODS, Execution, MomentsConfig, Psg, Synthesis
from privset.observer import Observer
from privset.pipeline import generate, ledger_beside, plan
from privset.privacy import PrivacyBudget, Tally, seeded_noise
from privset.privacy.ledger import read
from privset.release import verify

BUDGET = PrivacyBudget(epsilon=5.0, accountant="rdp")
METHOD = Psg(TINY["psg"])


def dataset(size=40):
    facts = facts_for(size)
    return Dataset(facts, records_for(facts), records_for(facts_for(12), seed=9))


@pytest.mark.parametrize("call", [privset.generate, privset.train, privset.measure, privset.plan])
@pytest.mark.parametrize(
    ("method", "budget", "sentence"),
    [
        (privset.DpMerf, BUDGET, r"such as privset\.DpMerf\(privset\.DpMerfConfig\(\)\), not <class"),
        ("dp-merf", BUDGET, "method must be a method with its settings, .*, not 'dp-merf'"),
        (METHOD, 5.0, r"budget must be a privset\.PrivacyBudget, .*, not 5\.0"),
    ],
)
def test_what_is_no_method_or_no_budget_is_refused_with_a_sentence(call, method, budget, sentence, tmp_path):
    where = {} if call is privset.plan else {"out": tmp_path / "set"}
    with pytest.raises(ConfigError, match=sentence):
        call("digits", method=method, budget=budget, **where)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("method", "words"), [("dp-merf", "goes on at no further cost"), ("g-pate", "charged again$")])
def test_a_release_that_cannot_be_written_in_the_end_says_that_it_was_charged(method, words, tmp_path, monkeypatch):
    def full(*_):
        raise ReleaseError("set cannot be written (No space left)")

    monkeypatch.setattr("privset.pipeline.save", full)
    how = {"method": METHODS[method](TINY[method]), "budget": PrivacyBudget(epsilon=5.0), "out": tmp_path / "set"}
    with pytest.raises(ReleaseError, match=rf"No space left\); what was charged stays charged, in .*{words}"):
        generate(dataset(), **how)
    assert read(ledger_beside(tmp_path / "set"))[1]


def test_a_release_is_written_verified_and_its_ledger_moved_into_it(tmp_path):
    release = generate(dataset(), method=METHOD, budget=BUDGET, out=tmp_path / "deep" / "set")
    assert verify(release.path).ok
    assert release.certificate.guarantee.private
    assert release.certificate.guarantee.epsilon_spent <= 5.0
    assert read(release.path / "ledger.jsonl")[1] == METHOD.plan(facts_for(40), BUDGET).events
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["set"]


def test_without_privacy_or_with_seeded_noise_the_release_says_so(tmp_path):
    nothing = generate(dataset(), method=METHOD, budget=PrivacyBudget(epsilon=math.inf), out=tmp_path / "inf")
    seeded = generate(dataset(), method=METHOD, budget=BUDGET, out=tmp_path / "seeded", noise=seeded_noise(1))
    for release in (nothing, seeded):
        assert not release.certificate.guarantee.private
        assert "not private" in release.certificate.statement.lower()
        assert "NOT PRIVATE" in (release.path / "README.md").read_text()
        assert verify(release.path).ok
    assert "Seeded noise: not private" in seeded.certificate.statement


def test_private_runs_differ_and_seeded_ones_repeat(tmp_path):
    def digest(name, noise):
        return generate(dataset(), method=METHOD, budget=BUDGET, out=tmp_path / name, noise=noise).set.digest()

    assert digest("a", seeded_noise(1)) == digest("b", seeded_noise(1))
    assert digest("c", None) != digest("d", None)


class Broken(Psg):
    """Fails half-way, like a machine that is switched off."""

    def _synthesise(self, curator, plan, execution, observer):
        super()._synthesise(curator, plan, execution, observer)
        raise RuntimeError("power cut")


class Curious(Psg):
    """Asks one question more than it planned."""

    def _synthesise(self, curator, plan, execution, observer):
        made = super()._synthesise(curator, plan, execution, observer)
        from privset.privacy import TotalQuestion

        curator.total(TotalQuestion(bound=1.0, noise_multiplier=100.0), lambda image, label: image.flatten())
        return made


class Onetime(Broken):
    """Neither keeps its answers nor where it stands."""

    resumable = False


def test_a_run_that_dies_leaves_its_charges_and_no_release_and_the_same_call_goes_on(tmp_path):
    out = tmp_path / "set"
    with pytest.raises(RuntimeError):
        generate(dataset(), method=Broken(TINY["psg"]), budget=BUDGET, out=out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["set.ledger.jsonl", "set.unfinished"]
    generate(dataset(), method=METHOD, budget=BUDGET, out=out)
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_a_run_that_cannot_go_on_and_dies_blocks_the_next(tmp_path):
    out = tmp_path / "set"
    with pytest.raises(RuntimeError):
        generate(dataset(), method=Onetime(TINY["psg"]), budget=BUDGET, out=out)
    assert [path.name for path in tmp_path.iterdir()] == ["set.ledger.jsonl"]
    with pytest.raises(BudgetError, match="by a run that did not finish"):
        generate(dataset(), method=METHOD, budget=BUDGET, out=out)
    ledger_beside(out).unlink()
    generate(dataset(), method=METHOD, budget=BUDGET, out=out)


def test_a_run_of_seeded_noise_that_cannot_go_on_and_is_interrupted_is_forgotten(tmp_path):
    class Interrupted(Onetime):
        def _synthesise(self, curator, plan, execution, observer):
            Psg._synthesise(self, curator, plan, execution, observer)
            raise KeyboardInterrupt

    out, method = tmp_path / "set", Interrupted(TINY["psg"])
    with pytest.raises(KeyboardInterrupt, match="not private: nothing is to be counted"):
        generate(dataset(), method=method, budget=BUDGET, out=out, noise=seeded_noise(1))
    assert not list(tmp_path.iterdir())
    told = []

    class Watching(Observer):
        def irrevocable(self, epsilon, ledger):
            told.append((epsilon, ledger))
            return super().irrevocable(epsilon, ledger)

    with pytest.raises(KeyboardInterrupt):
        generate(dataset(), method=method, budget=BUDGET, out=out, observer=Watching())
    assert told == [(method.plan(dataset().facts, BUDGET).epsilon, ledger_beside(out))]
    assert [path.name for path in tmp_path.iterdir()] == ["set.ledger.jsonl"]


def test_a_method_that_asks_more_than_it_planned_is_not_released(tmp_path):
    budget = PrivacyBudget(epsilon=6.0, accountant="rdp")
    config = dataclasses.replace(TINY["psg"], noise_multiplier=8.0)
    with pytest.raises(BudgetError, match="asked other questions than it planned"):
        generate(dataset(), method=Curious(config), budget=budget, out=tmp_path / "set")
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize("budget", [PrivacyBudget(epsilon=5.0, delta=0.5), PrivacyBudget(epsilon=1e-4)])
def test_a_budget_that_cannot_work_costs_nothing(tmp_path, budget):
    with pytest.raises(PrivsetError):
        generate(dataset(), method=METHOD, budget=budget, out=tmp_path / "set")
    assert list(tmp_path.iterdir()) == []


def test_a_taken_folder_and_bad_data_cost_nothing(tmp_path):
    (tmp_path / "taken").mkdir()
    with pytest.raises(ReleaseError, match="exists already"):
        generate(dataset(), method=METHOD, budget=BUDGET, out=tmp_path / "taken")
    with pytest.raises(PrivsetError, match="neither a named data set"):
        generate("nowhere", method=METHOD, budget=BUDGET, out=tmp_path / "set")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_images_that_are_not_finite_are_never_published(tmp_path):
    class Diverged(Psg):
        def _synthesise(self, curator, plan, execution, observer):
            made = super()._synthesise(curator, plan, execution, observer)
            return Synthesis(made.images * torch.nan, made.labels)

    with pytest.raises(ReleaseError, match=r"stays charged, in .*set\.ledger\.jsonl: another run, with lower"):
        generate(dataset(), method=Diverged(TINY["psg"]), budget=BUDGET, out=tmp_path / "set")
    assert not (tmp_path / "set").exists()


def test_without_a_method_the_plan_is_that_of_a_run_on_the_device(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    for device, preset in (("cpu", MomentsConfig.light()), ("cuda", MomentsConfig())):
        planned = plan(facts_for(6000), budget=BUDGET, execution=Execution(device=device))
        assert planned.config == preset


def test_the_python_interface_does_what_its_docstring_shows(tmp_path):
    tally = Tally()
    release = privset.generate(dataset(), method=METHOD, budget=BUDGET, out=tmp_path / "set", tally=tally)
    assert tally.not_finite == 0
    again = privset.load(tmp_path / "set")
    assert isinstance(again, privset.Release)
    assert again.set.digest() == release.set.digest()
    result = privset.evaluate(again, dataset(), classifier="mlp", recipe="quick", runs=2)
    assert len(result.accuracies) == 2
    assert privset.verify(tmp_path / "set").ok
