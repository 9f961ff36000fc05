"""What every method that asks as it goes promises if it can be stopped: killed anywhere, it ends as if it was not."""

import dataclasses
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.conftest import TINY, facts_for, records_for

from privset.data import Dataset
from privset.errors import BudgetError, ReleaseError
from privset.methods import METHODS, Checkpoint, MeasuringMethod, SetMethod, TrainingMethod, dp_sinkhorn
from privset.observer import Observer
from privset.pipeline import generate, train
from privset.privacy import Curator, PrivacyBudget, seeded_noise
from privset.privacy.ledger import read
from privset.privacy.standing import SECRET
from privset.release import verify
from privset.release.unfinished import Unfinished, folder_beside, ledger_beside

BUDGET = PrivacyBudget(epsilon=5.0, accountant="rdp")
ASKING = [name for name, kind in METHODS.items() if kind.resumable and not issubclass(kind, MeasuringMethod)]


class Killed(BaseException):
    """What no `except Exception` catches."""


class Killer(Observer):
    """Kills at the n-th step that it is told of, and remembers what it was shown."""

    def __init__(self, step=0):
        self.left, self.steps, self.shown = step, [], 0

    def step(self, count=1, **values):
        self.steps.append(count)
        self.left -= count
        if self.left == 0:
            raise Killed

    def show(self, look):
        self.shown += 1


@pytest.fixture(params=ASKING)
def method(request):
    return METHODS[request.param](TINY[request.param])


@pytest.fixture(autouse=True)
def _keep_every_state(monkeypatch):
    monkeypatch.setattr(Checkpoint, "seconds", 0.0)
    monkeypatch.setattr(dp_sinkhorn, "TOGETHER", 2)
    monkeypatch.setattr(dp_sinkhorn, "AHEAD", 2)  # so that a run is stopped within what was drawn ahead, and beyond


def dataset(size=40, seed=0):
    facts = facts_for(size)
    return Dataset(facts, records_for(facts, seed), None)


def run(method, out, *, data=None, noise: Any = 1, **options):
    make = train if isinstance(method, TrainingMethod) else generate
    source = None if noise is None else seeded_noise(noise)
    return make(data or dataset(), method=method, budget=BUDGET, out=out, noise=source, **options)


def kill(method, out, step, **options):
    with pytest.raises(Killed):
        run(method, out, observer=Killer(step), **options)


def content(release):
    """Every number that is published: of a classifier, or of a set and the generator that made it, if that is too."""
    if hasattr(release, "trained"):
        made = release.trained.weights
    else:
        state = {} if release.generator is None else release.generator.tensors
        made = {"images": release.set.images, "labels": release.set.labels} | state
    return {name: tensor.numpy().tobytes() for name, tensor in made.items()}


def test_those_whose_state_is_made_of_answers_can_be_stopped_and_those_with_private_networks_cannot():
    assert {"psg", "psg-prior", "dp-sgd", "dp-cgan", "dp-sinkhorn"} == set(ASKING)


def test_of_these_the_ones_that_learn_a_generator_publish_it(method):
    form = method.generator_form if isinstance(method, SetMethod) else None
    assert (form is not None) == (method.name in {"psg-prior", "dp-cgan", "dp-sinkhorn"})


def test_killed_at_any_step_it_ends_with_the_same_bytes_and_the_same_certificate(tmp_path, method):
    whole = run(method, tmp_path / "whole")
    if isinstance(method, SetMethod) and (form := method.generator_form) is not None:
        assert content(whole).keys() == form.blank(facts_for(40)).keys() | {"images", "labels"}
    questions = method.plan(facts_for(40), BUDGET).questions
    for step in (questions // 2, questions):
        out = tmp_path / f"killed-{step}"
        kill(method, out, step)
        again = run(method, out)
        assert content(again) == content(whole)
        assert again.certificate.events == whole.certificate.events
        assert again.certificate.guarantee == whole.certificate.guarantee
    assert verify(out).ok
    assert not list(tmp_path.glob("*.unfinished"))
    assert not list(tmp_path.glob("*.ledger.jsonl"))


@pytest.mark.parametrize("settings", [{"averaging": 0.0}, {"shallow": True}])
def test_killed_at_any_step_runs_of_dp_sinkhorn_that_differ_end_with_the_same_bytes(tmp_path, settings):
    """One publishes its last weights, and no average; one has a generator of another form."""
    method = METHODS["dp-sinkhorn"](dataclasses.replace(TINY["dp-sinkhorn"], **settings))
    whole = content(run(method, tmp_path / "whole"))
    for step in (1, 2):
        kill(method, tmp_path / str(step), step)
        assert content(run(method, tmp_path / str(step))) == whole


def test_killed_between_its_last_step_and_its_release_it_ends_with_the_same_bytes(tmp_path, method, monkeypatch):
    """By then only what is needed after the loop is kept."""
    whole, out, last = run(method, tmp_path / "whole"), tmp_path / "set", Killer()

    def killed(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("privset.pipeline.save", killed)
        with pytest.raises(Killed):
            run(method, out)
    assert content(run(method, out, observer=last)) == content(whole)
    assert last.steps == [method.plan(facts_for(40), BUDGET).questions]  # there was nothing left to do


def test_killed_again_and_again_it_goes_on_where_it_stood_and_every_answer_is_drawn_once(tmp_path, method, monkeypatch):
    """Counts what is drawn: answers after the last point are drawn again, all others never."""
    whole, out = run(method, tmp_path / "whole"), tmp_path / "set"
    asked: list[int] = []

    def counted(answer):
        def count(*arguments, **options):
            asked.append(options.get("draws") or options.get("steps", 1))
            return answer(*arguments, **options)

        return count

    for kind in ("gradient", "train_by_pullback"):
        monkeypatch.setattr(Curator, kind, counted(getattr(Curator, kind)))
    questions = method.plan(facts_for(40), BUDGET).questions
    kill(method, out, questions // 2)
    kill(method, out, questions - 1)
    last = Killer()
    assert content(run(method, out, observer=last)) == content(whole)
    assert last.steps[0] > 1  # what was done is told at once
    # A state is kept after each call here, so at most the one that was under way when it was killed is repeated.
    assert sum(asked) <= questions + 2 * max(asked)
    assert sum(last.steps) == questions


def test_noise_of_the_system_goes_on_too(tmp_path, method):
    """Nothing but the kept position can make two runs of secret noise agree: bytes are compared between two copies."""
    out = tmp_path / "set"
    kill(method, out, method.plan(facts_for(40), BUDGET).questions // 2, noise=None)
    copy_work(out, tmp_path / "copy")
    one = run(method, out, noise=None)
    out.rename(tmp_path / "first")
    copy_work(tmp_path / "copy", out)  # back over the original, which nothing can tell from it
    other = run(method, out, noise=None)
    assert content(one) == content(other)
    assert one.certificate.guarantee.private
    assert content(run(method, tmp_path / "fresh", noise=None)) != content(one)


def copy_work(out, to):
    shutil.copytree(folder_beside(out), folder_beside(to))
    shutil.copy(ledger_beside(out), ledger_beside(to))


def test_a_copy_of_a_private_run_does_not_go_on_beside_it_and_goes_on_once_it_is_moved_back(
    tmp_path, method, monkeypatch
):
    out, copy = tmp_path / "set", tmp_path / "copy"
    kill(method, out, 2, noise=None)
    copy_work(out, copy)
    before = {path: path.read_bytes() for path in folder_beside(copy).iterdir()}
    with pytest.raises(ReleaseError, match=r"copy\.unfinished was moved or copied.*Move it back to .*set\.unfinished"):
        run(method, copy, noise=None)
    assert {path: path.read_bytes() for path in folder_beside(copy).iterdir()} == before
    assert ledger_beside(copy).exists()
    assert not copy.exists()
    shutil.rmtree(folder_beside(out))
    folder_beside(copy).rename(folder_beside(out))
    ledger_beside(copy).replace(ledger_beside(out))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    kill(method, Path("link") / "set", 3, noise=None)  # the same place, spelled otherwise
    assert verify(run(method, Path("set"), noise=None).path).ok


def test_what_names_its_place_is_believed_by_its_point_alone(tmp_path, method):
    """Whoever writes another place into run.json does not get further."""
    out, copy = tmp_path / "set", tmp_path / "copy"
    kill(method, out, 2, noise=None)
    copy_work(out, copy)
    path = folder_beside(copy) / "run.json"
    path.write_text(path.read_text().replace(str(out), str(copy)))
    with pytest.raises(BudgetError, match="it belongs to another run"):
        run(method, copy, noise=None)


def test_a_run_of_seeded_noise_protects_no_one_and_may_be_moved(tmp_path, method):
    out, copy = tmp_path / "set", tmp_path / "copy"
    kill(method, out, 2)
    copy_work(out, copy)
    assert content(run(method, copy)) == content(run(method, out))


def test_only_what_is_kept_is_shown(tmp_path, method, monkeypatch):
    monkeypatch.setattr(Checkpoint, "seconds", 1e9)
    watcher = Killer()
    run(method, tmp_path / "set", observer=watcher)
    assert watcher.shown <= 1  # the last state alone was kept
    assert len(watcher.steps) == method.plan(facts_for(40), BUDGET).questions


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"data": dataset(seed=1)}, "other records"),
        ({"noise": None}, "noise was seeded with 1 and is system.*one of the two is private and the other is not"),
        ({"noise": 2}, "noise was seeded with 1 and is seeded with 2"),
    ],
)
def test_another_run_in_the_same_place_is_refused(tmp_path, method, change, words):
    kill(method, tmp_path / "set", 2)
    with pytest.raises(ReleaseError, match=words):
        run(method, tmp_path / "set", **change)
    other = type(method)(dataclasses.replace(method.config, seed=5))
    with pytest.raises(ReleaseError, match="seed was 0 and is 5"):
        run(other, tmp_path / "set")


def test_without_its_standing_a_run_cannot_go_on(tmp_path, method):
    out = tmp_path / "set"
    kill(method, out, 3)
    (folder_beside(out) / SECRET).unlink()
    with pytest.raises(BudgetError, match="where the noise of that run stood, is missing"):
        run(method, out)
    assert read(ledger_beside(out))[1] == method.plan(facts_for(40), BUDGET).events


def test_a_tampered_state_is_refused(tmp_path, method):
    out = tmp_path / "set"
    kill(method, out, method.plan(facts_for(40), BUDGET).questions - 1)
    (state,) = folder_beside(out).glob("standing-*")
    content = bytearray(state.read_bytes())
    content[-1] ^= 1  # one bit of one number
    state.write_bytes(content)
    with pytest.raises(BudgetError, match="where the run stood was changed"):
        run(method, out)
    assert not out.exists()


def test_the_key_that_a_kill_left_beside_a_finished_release_goes_when_that_is_asked_for_again(
    tmp_path, method, monkeypatch
):
    out = tmp_path / "set"

    def killed(self, *_):
        os.close(self._handle)  # the lock goes with the process

    with monkeypatch.context() as patch:
        patch.setattr(Unfinished, "__exit__", killed)
        run(method, out, noise=None)
    secret = folder_beside(out) / SECRET
    assert secret.stat().st_mode & 0o777 == 0o600
    with open(secret, "rb") as file:
        with pytest.raises(ReleaseError, match="exists already"):
            run(method, out, noise=None)
        assert set(file.read()) == {0}
    assert [path.name for path in tmp_path.iterdir()] == ["set"]
    assert verify(out).ok


def test_fewer_answers_than_planned_are_not_released(tmp_path, method):
    class Hasty(type(method)):
        """Takes a state for one of a later step: answers are left out."""

        def _check(self, curator, plan):
            super()._check(curator, plan)
            curator._standing.use(plan.events[0].__class__(**dataclasses.asdict(plan.events[0]) | {"count": 1}), 1)

    with pytest.raises(BudgetError, match=r"used \d+ answers and planned"):
        run(Hasty(method.config), tmp_path / "set")
    assert not (tmp_path / "set").exists()


def test_a_run_that_fails_before_it_is_charged_leaves_nothing(tmp_path, method, monkeypatch):
    def refuse(*_):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(Curator, "prepay", refuse)
    with pytest.raises(RuntimeError, match="out of memory"):
        run(method, tmp_path / "set")
    assert list(tmp_path.iterdir()) == []


def test_what_is_kept_is_made_of_answers_alone(tmp_path, method, monkeypatch):
    """With silenced answers, what is on file does not depend on the records."""
    gradient, train = Curator.gradient, Curator.train_by_pullback

    def silent_gradient(*arguments, **options):
        answers = gradient(*arguments, **options)
        return [{name: torch.zeros_like(value) for name, value in answer.items()} for answer in answers]

    monkeypatch.setattr(Curator, "gradient", silent_gradient)

    def silent_training(curator, question, pull, make, learn, *, steps):
        train(curator, question, pull, make, lambda answer: learn(torch.zeros_like(answer)), steps=steps)

    monkeypatch.setattr(Curator, "train_by_pullback", silent_training)
    states = []
    for seed in (0, 1):
        out = tmp_path / str(seed)
        kill(method, out, method.plan(facts_for(40), BUDGET).questions - 1, data=dataset(seed=seed))
        (state,) = folder_beside(out).glob("standing-*")
        states.append(state.read_bytes())
    assert states[0] == states[1]
