"""Runs that are stopped and taken up again: same result, nothing charged or answered twice."""

import dataclasses
import shutil

import pytest
import safetensors.torch
import torch
from tests.conftest import TINY, facts_for, records_for

import privset
from privset.data import Dataset
from privset.errors import BudgetError, ConfigError, ReleaseError
from privset.methods import Checkpoint, Moments, Psg
from privset.observer import Observer
from privset.pipeline import generate, measure
from privset.privacy import KeptAnswers, PrivacyBudget, seeded_noise
from privset.privacy.ledger import read
from privset.release import distil, load_statistics, verify
from privset.release.unfinished import folder_beside, ledger_beside

BUDGET = PrivacyBudget(epsilon=5.0, accountant="rdp")
CONFIG = dataclasses.replace(TINY["moments"], steps=8)
METHOD = Moments(CONFIG)


def dataset(size=40, seed=0):
    facts = facts_for(size)
    return Dataset(facts, records_for(facts, seed), None)


class Killed(BaseException):
    """What no `except Exception` catches."""


class Killer(Observer):
    """Kills at the n-th step of a phase."""

    def __init__(self, phase, step):
        self.wanted, self.left, self.now = phase, step, ""

    def phase(self, name, total):
        self.now = name

    def step(self, count=1, **values):
        if self.now == self.wanted:
            self.left -= count
            if self.left <= 0:
                raise Killed


class Counter(Observer):
    def __init__(self):
        self.steps, self.folders = {}, []

    def going_on(self, folder):
        self.folders.append(folder)

    def phase(self, name, total):
        self.now = name

    def step(self, count=1, **values):
        self.steps.setdefault(self.now, []).append(count)


@pytest.fixture(autouse=True)
def _keep_every_state(monkeypatch):
    monkeypatch.setattr(Checkpoint, "seconds", 0.0)


def kill(action, phase, step):
    with pytest.raises(Killed):
        action(observer=Killer(phase, step))


def test_measuring_and_distilling_is_generating(tmp_path):
    whole = generate(dataset(), method=METHOD, budget=BUDGET, out=tmp_path / "whole", noise=seeded_noise(1))
    measured = measure(dataset(), method=METHOD, budget=BUDGET, out=tmp_path / "statistics", noise=seeded_noise(1))
    made = distil(measured, out=tmp_path / "set")
    assert made.set.digest() == whole.set.digest()
    assert made.certificate.events == whole.certificate.events
    assert whole.certificate.source is None
    assert verify(whole.path).ok
    assert verify(made.path, source=measured.path).ok
    assert sorted(path.name for path in tmp_path.iterdir()) == ["set", "statistics", "whole"]


def test_private_statistics_make_any_number_of_sets_without_data(tmp_path):
    privset.measure(dataset(), method=METHOD, budget=BUDGET, out=tmp_path / "statistics")
    first = privset.distil(tmp_path / "statistics", out=tmp_path / "first")
    second = privset.distil(tmp_path / "statistics", out=tmp_path / "second", per_class=5, seed=9, steps=3)
    assert first.set.per_class == (2, 2, 2)
    assert second.set.per_class == (5, 5, 5)
    for made in (first, second):
        assert made.certificate.guarantee.private
        assert verify(made.path, source=tmp_path / "statistics").ok
        assert "every other set distilled from them" in made.certificate.statement
    assert second.certificate.seeds == {"public": 9, "measured": 0}
    again = privset.distil(tmp_path / "statistics", out=tmp_path / "again")
    assert again.set.digest() == first.set.digest()


def test_a_distilled_set_of_seeded_statistics_is_not_private(tmp_path):
    measure(dataset(), method=METHOD, budget=BUDGET, out=tmp_path / "statistics", noise=seeded_noise(1))
    made = distil(tmp_path / "statistics", out=tmp_path / "set")
    assert not made.certificate.guarantee.private
    assert made.certificate.statement.startswith("NOT PRIVATE.")


@pytest.mark.parametrize("seed", [-1, 2**32, 10**14])
def test_a_seed_that_would_overflow_is_refused_before_anything_is_charged(seed):
    with pytest.raises(ConfigError, match=r"seed must be 0 or more, and below 2\*\*32"):
        dataclasses.replace(CONFIG, seed=seed)


def test_the_largest_seed_measures(tmp_path):
    method = Moments(dataclasses.replace(CONFIG, seed=2**32 - 1))
    assert verify(generate(dataset(), method=method, budget=BUDGET, out=tmp_path / "set").path).ok


@pytest.mark.parametrize("step", [1, 2])
def test_measuring_goes_on_where_it_was_killed(tmp_path, step):
    def run(out, **options):
        return measure(dataset(), method=METHOD, budget=BUDGET, out=out, noise=seeded_noise(1), **options)

    whole = run(tmp_path / "whole")
    out = tmp_path / "statistics"
    kill(lambda **options: run(out, **options), "measuring", step)
    assert not out.exists()
    kept = sorted(folder_beside(out).glob("answer-*"))
    assert len(kept) == 1 + 2 * step
    before = [path.read_bytes() for path in kept]
    charged = ledger_beside(out).read_bytes()
    kill(lambda **options: run(out, **options), "measuring", 1)
    assert [path.read_bytes() for path in kept] == before
    resumed = run(out)
    assert resumed.statistics.digest() == whole.statistics.digest()
    assert (out / "ledger.jsonl").read_bytes() == charged
    assert verify(out).ok
    assert sorted(path.name for path in tmp_path.iterdir()) == ["statistics", "whole"]


def test_private_noise_is_drawn_once_for_each_question(tmp_path):
    out = tmp_path / "statistics"
    kill(lambda **o: measure(dataset(), method=METHOD, budget=BUDGET, out=out, **o), "measuring", 1)
    assert len(KeptAnswers(folder_beside(out))) == 3
    before = [safetensors.torch.load_file(path)["answer"] for path in sorted(folder_beside(out).glob("answer-*"))]
    resumed = measure(dataset(), method=METHOD, budget=BUDGET, out=out)
    tensors = resumed.statistics.tensors
    published = [tensors["class_sizes"], tensors["feature_sums"][:1], tensors["lifted_sums"][0]]
    assert all(torch.equal(a, b) for a, b in zip(before, published, strict=True))
    assert read(out / "ledger.jsonl")[1] == METHOD.plan(facts_for(40), BUDGET).events


@pytest.mark.parametrize("action", [measure, generate])
def test_a_copy_of_a_private_run_does_not_answer_beside_it(tmp_path, action):
    def run(out, **options):
        return action(dataset(), method=METHOD, budget=BUDGET, out=out, **options)

    out, copy = tmp_path / "one", tmp_path / "other"
    kill(lambda **options: run(out, **options), "measuring", 1)
    shutil.copytree(folder_beside(out), folder_beside(copy))
    shutil.copy(ledger_beside(out), ledger_beside(copy))
    with pytest.raises(ReleaseError, match=r"other\.unfinished was moved or copied.*Move it back to .*one\.unfinished"):
        run(copy)
    assert not copy.exists()
    assert verify(run(out).path).ok


@pytest.mark.parametrize(("phase", "step"), [("measuring", 1), ("distilling", 1), ("distilling", 5), ("distilling", 8)])
def test_generating_goes_on_where_it_was_killed(tmp_path, phase, step):
    def run(out, **options):
        return generate(dataset(), method=METHOD, budget=BUDGET, out=out, noise=seeded_noise(1), **options)

    whole, out = run(tmp_path / "whole"), tmp_path / "set"
    kill(lambda **options: run(out, **options), phase, step)
    counter = Counter()
    assert run(out, observer=counter).set.digest() == whole.set.digest()
    assert counter.folders == [folder_beside(out)]
    if phase == "distilling":
        assert counter.steps["distilling"][0] == step  # not done again
    assert verify(out).ok
    assert sorted(path.name for path in tmp_path.iterdir()) == ["set", "whole"]


@pytest.mark.parametrize("step", [1, 5, 8])
def test_distilling_goes_on_where_it_was_killed(tmp_path, step):
    measure(dataset(), method=METHOD, budget=BUDGET, out=tmp_path / "statistics")

    def run(out, **options):
        return distil(tmp_path / "statistics", out=out, per_class=3, **options)

    whole, out = run(tmp_path / "whole"), tmp_path / "set"
    kill(lambda **options: run(out, **options), "distilling", step)
    counter = Counter()
    assert run(out, observer=counter).set.digest() == whole.set.digest()
    assert counter.steps["distilling"][0] == step
    assert not folder_beside(out).exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"data": dataset(seed=1)}, "other records"),
        ({"data": dataset(size=41)}, "size was 40 and is 41"),
        ({"budget": PrivacyBudget(epsilon=4.0, accountant="rdp")}, "epsilon was 5.0 and is 4.0"),
        ({"method": Moments(dataclasses.replace(CONFIG, width=5))}, "width was 4 and is 5"),
        ({"method": Moments(dataclasses.replace(CONFIG, per_class=5))}, "per_class was 2 and is 5"),
        ({"noise": None}, "noise was seeded with 1 and is system"),
        ({"noise": seeded_noise(2)}, "noise was seeded with 1 and is seeded with 2"),
    ],
)
def test_another_run_in_the_same_place_is_refused(tmp_path, change, words):
    out = tmp_path / "statistics"
    usual = {"data": dataset(), "method": METHOD, "budget": BUDGET, "noise": seeded_noise(1)}
    data = usual.pop("data")
    kill(lambda **options: measure(data, out=out, **usual, **options), "measuring", 1)
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*") if path.is_file())
    asked = usual | change
    data = asked.pop("data", data)
    counter = Counter()
    with pytest.raises(ReleaseError) as found:
        measure(data, out=out, observer=counter, **asked)
    assert words in str(found.value)
    assert "stays in" in str(found.value)
    assert counter.folders == []
    with pytest.raises(ReleaseError, match="command was measure and is generate"):
        generate(dataset(), out=out, **usual)
    after = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*") if path.is_file())
    assert after == before


def test_other_settings_of_a_stopped_distillation_are_refused(tmp_path):
    measure(dataset(), method=METHOD, budget=BUDGET, out=tmp_path / "statistics")
    kill(lambda **o: distil(tmp_path / "statistics", out=tmp_path / "set", **o), "distilling", 2)
    with pytest.raises(ReleaseError, match="seed was 0 and is 1"):
        distil(tmp_path / "statistics", out=tmp_path / "set", seed=1)


def test_a_deleted_work_folder_leaves_the_charges_in_the_way(tmp_path):
    out = tmp_path / "statistics"
    kill(lambda **o: measure(dataset(), method=METHOD, budget=BUDGET, out=out, **o), "measuring", 1)
    shutil.rmtree(folder_beside(out))
    with pytest.raises(BudgetError, match="by a run that did not finish"):
        measure(dataset(), method=METHOD, budget=BUDGET, out=out)


def test_what_cannot_be_distilled_is_refused(tmp_path):
    source = tmp_path / "statistics"
    measure(dataset(), method=METHOD, budget=BUDGET, out=source)
    with pytest.raises(ConfigError, match="measured with width 4"):
        distil(source, out=tmp_path / "set", width=5)
    with pytest.raises(ConfigError, match="moments has no setting colour"):
        distil(source, out=tmp_path / "set", colour="red")
    with pytest.raises(ConfigError, match="per-class must be at least 1"):
        distil(source, out=tmp_path / "set", per_class=0)
    card = source / "README.md"
    card.write_text(card.read_text() + " ")
    with pytest.raises(ReleaseError, match=r"is not what it claims to be.*card: README.md was changed"):
        distil(source, out=tmp_path / "set")
    assert [path.name for path in tmp_path.iterdir()] == ["statistics"]


def test_methods_that_ask_as_they_go_cannot_measure(tmp_path):
    with pytest.raises(ConfigError, match="psg asks as it goes"):
        measure(dataset(), method=Psg(TINY["psg"]), budget=BUDGET, out=tmp_path / "statistics")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_statistics_are_not_written_if_more_was_asked_than_planned(tmp_path):
    class Curious(Moments):
        """Asks one question more than it planned."""

        def _measure(self, curator, plan, execution, observer):
            from privset.privacy import TotalQuestion

            found = super()._measure(curator, plan, execution, observer)
            curator.total(TotalQuestion(bound=1.0, noise_multiplier=1e6), lambda image, label: image.flatten())
            return found

    loose = PrivacyBudget(epsilon=5.0, accountant="rdp")
    with pytest.raises(BudgetError, match=r"past the budget|asked other questions"):
        measure(dataset(), method=Curious(CONFIG), budget=loose, out=tmp_path / "statistics")
    assert not (tmp_path / "statistics").exists()


def test_the_default_method_is_moments(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("privset.Moments.preset", lambda name, **_: asked.append(name) or CONFIG)
    privset.measure(dataset(), budget=BUDGET, out=tmp_path / "statistics")
    assert load_statistics(tmp_path / "statistics").certificate.method == "moments"
    assert asked == ["light"]  # there is no graphics card in its execution
