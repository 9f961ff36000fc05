"""Where a run of gradient questions stands: the same answers again, each paid for once, and a secret that goes."""

import dataclasses
import json
import os
import stat
from pathlib import Path

import pytest
import torch
from tests.conftest import facts_for, records_for

from privset.errors import BudgetError, ConfigError
from privset.privacy import (
    BudgetExceeded,
    Curator,
    GradientQuestion,
    KeptAnswers,
    Ledger,
    PrivacyBudget,
    Standing,
    TotalQuestion,
    go_on,
    seeded_noise,
    standing,
    system_noise,
)
from privset.privacy.ledger import read
from privset.privacy.standing import SECRET, erase

FACTS = facts_for(60)
PLANNED = 6
QUESTION = GradientQuestion(sampling_rate=0.5, clip_norm=1.0, noise_multiplier=4.0)
BUDGET = PrivacyBudget(epsilon=8.0, accountant="rdp")


def loss(parameters, image, label):
    return (parameters["w"] * image.flatten()).sum() * (1.0 + label)


class Run:
    """One process of a run: a curator on its folder, and a state that adds up what was answered."""

    def __init__(self, folder, *, run="this one", budget=BUDGET):
        self.paid = False
        ledger, self.standing, noise = go_on(budget, folder / "ledger", folder, system_noise(), run)
        self.curator = Curator(records_for(FACTS), FACTS, ledger, noise, standing=self.standing)
        state = self.curator.checkpoint.load()
        self.step = 0 if state is None else json.loads(state)["step"]

    def ask(self):
        if not self.paid:
            self.curator.prepay(QUESTION, PLANNED)
            self.paid = True
        (answer,) = self.curator.gradient(QUESTION, loss, {"w": torch.zeros(64)})
        self.step += 1
        return answer["w"]

    def keep(self):
        self.curator.checkpoint.save(json.dumps({"step": self.step}).encode())


def test_what_is_asked_again_is_answered_as_it_was(tmp_path):
    """The test that fails if noise or sample were drawn afresh: the noise here is the system's, which nobody seeds."""
    first = Run(tmp_path)
    answers = [first.ask(), first.ask()]
    first.keep()
    lost = [first.ask(), first.ask()]  # and killed
    second = Run(tmp_path)
    assert second.step == 2
    assert torch.equal(second.ask(), lost[0])
    second.keep()
    third = Run(tmp_path)
    assert third.step == 3
    again = [third.ask() for _ in range(PLANNED - 3)]
    assert torch.equal(again[0], lost[1])
    for one in [*answers, lost[0], *again[1:]]:
        assert not torch.equal(one, lost[1])  # no two questions share an answer


def test_a_run_that_was_killed_before_its_first_state_is_answered_as_before(tmp_path):
    lost = [(run := Run(tmp_path)).ask(), run.ask()]
    again = Run(tmp_path)
    assert again.step == 0
    assert all(torch.equal(again.ask(), one) for one in lost)


def test_everything_is_charged_once_and_no_answer_more_than_planned_is_given(tmp_path):
    tight = PrivacyBudget(epsilon=4.0, accountant="rdp")
    for stop in (2, 1, 2):
        run = Run(tmp_path, budget=tight)
        for _ in range(stop):
            run.ask()
        run.keep()
    run = Run(tmp_path, budget=tight)
    assert run.standing.answered == 5
    assert read(tmp_path / "ledger")[1] == (QUESTION.event(PLANNED),)
    run.ask()
    many = 400  # far more than is left, and each would have to be paid for anew
    with pytest.raises(BudgetExceeded):
        run.curator.gradient(QUESTION, loss, {"w": torch.zeros(64)}, draws=many)
    assert read(tmp_path / "ledger")[1] == (QUESTION.event(PLANNED),)


def test_one_more_answer_than_planned_is_charged_though_some_were_used_by_an_earlier_process(tmp_path):
    run = Run(tmp_path)
    for _ in range(4):
        run.ask()
    run.keep()
    again = Run(tmp_path)
    again.curator.prepay(QUESTION, PLANNED)
    again.curator.gradient(QUESTION, loss, {"w": torch.zeros(64)}, draws=PLANNED - 4)
    assert read(tmp_path / "ledger")[1] == (QUESTION.event(PLANNED),)
    again.curator.gradient(QUESTION, loss, {"w": torch.zeros(64)})
    assert read(tmp_path / "ledger")[1] == (QUESTION.event(PLANNED + 1),)
    assert again.standing.answered == PLANNED + 1


def test_totals_are_answered_again_as_they_were_too(tmp_path):
    def ask():
        ledger, standing, noise = go_on(BUDGET, tmp_path / "ledger", tmp_path, system_noise(), "run")
        curator = Curator(records_for(FACTS), FACTS, ledger, noise, standing=standing)
        question = TotalQuestion(bound=1.0, noise_multiplier=8.0)
        return curator.total(question, lambda image, label: image.flatten())

    assert torch.equal(ask(), ask())


def test_the_secret_is_for_its_owner_alone_durable_before_anything_is_charged_and_named_by_no_state(tmp_path):
    run = Run(tmp_path)
    assert not (tmp_path / "ledger").exists()
    assert (tmp_path / SECRET).exists()
    run.ask()
    run.keep()
    assert stat.S_IMODE(os.stat(tmp_path / SECRET).st_mode) == 0o600
    content = json.loads((tmp_path / SECRET).read_text())
    key = content["noise"]["chacha"]["keysetup"]
    state = next(tmp_path.glob("standing-*")).read_bytes()
    assert not any(str(word).encode() in state for word in key)


def test_the_last_secret_and_the_erased_one_are_overwritten(tmp_path):
    run = Run(tmp_path)
    with open(tmp_path / SECRET, "rb") as old:
        run.ask()
        run.keep()
        assert set(old.read()) == {0}
    with open(tmp_path / SECRET, "rb") as old:
        erase(tmp_path / SECRET)
        assert set(old.read()) == {0}
    assert not (tmp_path / SECRET).exists()
    erase(tmp_path / SECRET)  # not there: nothing to do


def half_of_the_noise(content):
    content["noise"]["chacha"]["ctr"][0] += 16


def fewer_answers(content):
    content["answered"][0]["count"] -= 1


@pytest.mark.parametrize("change", [half_of_the_noise, fewer_answers, lambda c: c.pop("check"), lambda c: c.clear()])
def test_a_changed_secret_is_refused(tmp_path, change):
    run = Run(tmp_path)
    run.ask()
    run.keep()
    path = tmp_path / SECRET
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(BudgetError, match=r"cannot be taken up .*put back what was there"):
        Run(tmp_path)


def test_a_changed_or_missing_state_is_refused(tmp_path):
    run = Run(tmp_path)
    run.ask()
    run.keep()
    state = next(tmp_path.glob("standing-*"))
    content = state.read_bytes()
    state.write_bytes(content.replace(b"1", b"0"))
    with pytest.raises(BudgetError, match="where the run stood was changed"):
        Run(tmp_path)
    state.unlink()
    with pytest.raises(BudgetError, match="where the run stood cannot be read"):
        Run(tmp_path)
    state.write_bytes(content)
    assert Run(tmp_path).step == 1


def test_charges_without_a_standing_and_answers_without_charges_are_refused(tmp_path):
    run = Run(tmp_path)
    run.ask()
    run.keep()
    secret, ledger = (tmp_path / SECRET).read_bytes(), (tmp_path / "ledger").read_bytes()
    (tmp_path / SECRET).unlink()
    with pytest.raises(BudgetError, match="where the noise of that run stood, is missing"):
        Run(tmp_path)
    (tmp_path / SECRET).write_bytes(secret)
    (tmp_path / "ledger").unlink()
    with pytest.raises(BudgetError, match=r"has used 1 answer\(s\), more than"):
        Run(tmp_path)
    (tmp_path / "ledger").write_bytes(ledger)
    with pytest.raises(BudgetError, match="it belongs to another run"):
        Run(tmp_path, run="another")
    assert Run(tmp_path).step == 1


def test_charges_that_were_lost_before_the_first_state_are_made_again_for_the_same_answers(tmp_path):
    """Nothing says then that there were any; but nothing is answered that the new ledger does not pay for in full."""
    lost = [(run := Run(tmp_path)).ask(), run.ask()]
    (tmp_path / "ledger").unlink()
    again = Run(tmp_path)
    assert all(torch.equal(again.ask(), one) for one in lost)
    assert read(tmp_path / "ledger")[1] == (QUESTION.event(PLANNED),)


def test_what_a_kill_leaves_between_two_files_goes(tmp_path):
    run = Run(tmp_path)
    run.ask()
    run.keep()
    (tmp_path / "standing-0123456789abcdef.safetensors").write_bytes(b"of a process that was killed just then")
    (tmp_path / f".{SECRET}.00000000.partial").write_bytes(b"{")
    (tmp_path / ".standing-0123456789abcdef.safetensors.00000000.partial").write_bytes(b"half")
    assert Run(tmp_path).step == 1
    assert len(list(tmp_path.glob("standing-*"))) == 1
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("failing", ["_overwrite", "write_whole"])
def test_what_stops_before_the_last_secret_is_overwritten_leaves_it_a_name_and_the_next_process_erases_it(
    tmp_path, monkeypatch, failing
):
    """A kill, Ctrl-C or a failing disk, just after the secret was replaced."""
    first = Run(tmp_path)
    first.ask()
    first.keep()
    handle, key = os.open(tmp_path / SECRET, os.O_RDONLY), (tmp_path / SECRET).read_bytes()
    real = standing.write_whole

    def stopped(*given):
        if failing == "write_whole":
            real(*given)
            if given[0].name != SECRET:
                return
        raise KeyboardInterrupt

    monkeypatch.setattr(standing, failing, stopped)
    first.ask()
    with pytest.raises(KeyboardInterrupt):
        first.keep()
    monkeypatch.undo()
    assert os.pread(handle, len(key), 0) == key
    assert all(standing.is_secret(path) for path in tmp_path.glob(".*.partial"))
    assert Run(tmp_path).step == 2
    assert os.pread(handle, len(key), 0) == bytes(len(key))
    assert list(tmp_path.glob(".*.partial")) == []


@pytest.mark.parametrize("can_tell", [True, False])
def test_a_kill_before_the_secret_is_replaced_leaves_it_two_names_and_it_is_not_erased(tmp_path, monkeypatch, can_tell):
    """Nor on a file system that numbers a file anew for each of its names."""
    if not can_tell:
        monkeypatch.setattr(Path, "samefile", lambda *_: False)
    first = Run(tmp_path)
    first.ask()
    first.keep()
    os.link(tmp_path / SECRET, tmp_path / f".{SECRET}.01234567.partial")
    assert Run(tmp_path).step == 1
    assert list(tmp_path.glob(".*.partial")) == []
    assert Run(tmp_path).step == 1


def test_a_reopened_ledger_needs_a_standing_or_kept_answers_and_not_both(tmp_path):
    Run(tmp_path).ask()
    ledger = Ledger.reopened(BUDGET, tmp_path / "ledger")
    with pytest.raises(ConfigError, match="here are neither"):
        Curator(records_for(FACTS), FACTS, ledger, seeded_noise(0))
    (tmp_path / "other").mkdir()
    kept, standing = KeptAnswers(tmp_path / "other"), Standing(tmp_path, seeded_noise(0), "this one")
    with pytest.raises(ConfigError, match="not both"):
        Curator(records_for(FACTS), FACTS, ledger, seeded_noise(0), kept=kept, standing=standing)


def test_a_disk_that_is_full_ends_the_run_and_the_last_point_stays(tmp_path, monkeypatch):
    run = Run(tmp_path)
    first = run.ask()
    run.keep()
    second = run.ask()

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("privset.privacy.standing.write_whole", full)
        with pytest.raises(BudgetError, match="No space left on device"):
            run.keep()
    again = Run(tmp_path)
    assert again.step == 1
    assert torch.equal(again.ask(), second)
    assert not torch.equal(first, second)


def test_an_event_of_another_kind_has_its_own_count(tmp_path):
    run = Run(tmp_path)
    other = dataclasses.replace(QUESTION, noise_multiplier=9.0)
    run.ask()
    run.curator.gradient(other, loss, {"w": torch.zeros(64)}, draws=2)
    assert run.standing.debts() == {QUESTION.event(1): -1, other.event(1): -2}


def test_what_others_draw_from_the_source_that_was_given_is_never_drawn_by_a_run_that_goes_on(tmp_path):
    given = system_noise()
    go_on(BUDGET, tmp_path / "ledger", tmp_path, given, "run")
    others = set(given.bits(64).tolist())  # between the two pieces of the run
    _, _, again = go_on(BUDGET, tmp_path / "ledger", tmp_path, given, "run")
    assert not others & set(again.bits(64).tolist())
    assert not others & set(given.bits(64).tolist())  # nor is the source that was given moved back
