"""Answers that outlive a stopped run: each question is answered once, charged once, and never with old noise."""

import json
import os

import pytest
import torch
from tests.conftest import facts_for, records_for

from privset.errors import BudgetError, ConfigError
from privset.privacy import (
    Curator,
    GaussianEvent,
    GradientQuestion,
    KeptAnswers,
    Ledger,
    PrivacyBudget,
    TotalQuestion,
    seeded_noise,
    system_noise,
    take_up,
)
from privset.privacy import kept as kept_module
from privset.privacy.ledger import read

BUDGET = PrivacyBudget(epsilon=2.0, accountant="rdp")
QUESTION = TotalQuestion(bound=1.0, noise_multiplier=10.0)
OTHER = TotalQuestion(bound=1.0, noise_multiplier=12.0, by_class=False)
FACTS = facts_for(40)


class Run:
    """One process of a run: what it finds on disk, and a curator on it."""

    def __init__(self, folder, noise=None):
        self.ledger, self.kept = take_up(BUDGET, folder / "ledger.jsonl", folder)
        self.curator = Curator(records_for(FACTS), FACTS, self.ledger, noise or seeded_noise(3), kept=self.kept)

    def ask(self, count):
        """Of the run's four questions, the first ``count``."""
        self.curator.prepay(QUESTION, 3)
        self.curator.prepay(OTHER, 1)
        questions = [QUESTION, OTHER, QUESTION, QUESTION][:count]
        return [self.curator.total(question, lambda image, label: image.flatten()) for question in questions]


def test_a_resumed_run_gives_kept_answers_again_and_charges_nothing(tmp_path):
    first = Run(tmp_path, system_noise()).ask(2)
    charged = (tmp_path / "ledger.jsonl").read_bytes()
    again = Run(tmp_path, system_noise()).ask(4)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=False))
    assert (tmp_path / "ledger.jsonl").read_bytes() == charged
    third = Run(tmp_path, system_noise()).ask(4)
    assert all(torch.equal(a, b) for a, b in zip(again, third, strict=True))


@pytest.mark.parametrize("stops", [[0], [1], [1, 3], [2, 2, 4]])
def test_noise_from_a_seed_goes_on_as_if_nothing_had_happened(tmp_path, stops):
    (tmp_path / "whole").mkdir()
    whole = Run(tmp_path / "whole").ask(4)
    for stop in stops:
        Run(tmp_path).ask(stop)
    assert all(torch.equal(a, b) for a, b in zip(whole, Run(tmp_path).ask(4), strict=True))


def test_no_two_questions_share_noise_across_a_stop(tmp_path):
    first = Run(tmp_path).ask(1)[0]
    third = Run(tmp_path).ask(3)[2]
    assert not torch.equal(first, third)  # the same question, asked twice


def test_an_answer_is_durable_before_anyone_has_it(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    run = Run(tmp_path)
    monkeypatch.setattr(kept_module, "write_whole", full)
    with pytest.raises(BudgetError, match="so no one gets it"):
        run.ask(1)
    monkeypatch.undo()
    assert len(KeptAnswers(tmp_path)) == 0
    assert len(Run(tmp_path).ask(4)) == 4
    assert read(tmp_path / "ledger.jsonl")[1] == (QUESTION.event(3), OTHER.event(1))


def test_writing_is_whole_and_synced(tmp_path, monkeypatch):
    synced = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (synced.append(handle), real(handle)))
    kept_module.write_whole(tmp_path / "file", b"content")
    assert len(synced) == 2  # the file, and the folder that holds its name
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        kept_module.write_whole(tmp_path / "file", b"other")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"content"


def test_a_stop_between_two_charges_charges_the_rest(tmp_path):
    Run(tmp_path).curator.prepay(QUESTION, 3)
    Run(tmp_path).ask(4)
    assert read(tmp_path / "ledger.jsonl")[1] == (QUESTION.event(3), OTHER.event(1))


def test_more_than_was_charged_is_charged_anew_or_refused(tmp_path):
    Run(tmp_path).ask(4)
    run = Run(tmp_path)
    run.ask(4)
    run.curator.total(QUESTION, lambda image, label: image.flatten())  # a fifth
    assert run.ledger.events[0].count == 4
    with pytest.raises(BudgetError, match="past the budget"):
        run.curator.prepay(TotalQuestion(bound=1.0, noise_multiplier=0.5), 1)


@pytest.mark.parametrize("cut", [1, 20, 150])
def test_a_line_cut_off_by_a_crash_was_never_answered_on(tmp_path, cut):
    Run(tmp_path).curator.prepay(QUESTION, 3)
    Run(tmp_path).curator.prepay(OTHER, 1) if cut == 150 else None
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    assert len(Run(tmp_path).ask(4)) == 4
    assert set(read(path)[1]) == {QUESTION.event(3), OTHER.event(1)}


def test_what_does_not_fit_together_is_refused(tmp_path):
    Run(tmp_path).ask(3)
    path = tmp_path / "ledger.jsonl"
    with pytest.raises(BudgetError, match="another budget"):
        take_up(PrivacyBudget(epsilon=3.0, accountant="rdp"), path, tmp_path)
    charged = path.read_bytes()
    path.unlink()
    with pytest.raises(BudgetError, match=r"holds 3 answer\(s\), more than .* was charged for"):
        take_up(BUDGET, path, tmp_path)
    path.write_bytes(charged)
    (tmp_path / "answer-000001.safetensors").rename(tmp_path / "elsewhere")
    with pytest.raises(BudgetError, match="kept answers are missing"):
        take_up(BUDGET, path, tmp_path)


def test_an_answer_to_another_question_or_a_damaged_one_is_refused(tmp_path):
    Run(tmp_path).ask(1)
    run = Run(tmp_path)
    with pytest.raises(BudgetError, match="is asked in its place"):
        run.curator.total(OTHER, lambda image, label: image.flatten())
    path = tmp_path / "answer-000000.safetensors"
    content = path.read_bytes()
    for damaged in (b"not tensors", content[:-1] + bytes([content[-1] ^ 1])):
        path.write_bytes(damaged)
        with pytest.raises(BudgetError, match=r"cannot be read, or was changed .* delete nothing"):
            Run(tmp_path).ask(1)


@pytest.mark.parametrize("lost", [["answer-000002.safetensors"], ["answers.jsonl"]])
def test_a_lost_end_is_noticed(tmp_path, lost):
    Run(tmp_path).ask(3)
    for name in lost:
        (tmp_path / name).unlink()
    with pytest.raises(BudgetError, match="delete nothing"):
        Run(tmp_path)


@pytest.mark.parametrize("journal", ["not json", '{"answered": 1, "sha256": ""}', "[]", '{"answered": 0}'])
def test_a_damaged_journal_is_refused(tmp_path, journal):
    Run(tmp_path).ask(1)
    (tmp_path / "answers.jsonl").write_text(journal + "\n")
    with pytest.raises(BudgetError, match="the journal of kept answers cannot be read"):
        Run(tmp_path)


def test_an_answer_is_in_the_journal_before_anyone_has_it(tmp_path, monkeypatch):
    Run(tmp_path).ask(1)
    run = Run(tmp_path)

    def killed(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(run.kept, "_enter", killed)
    with pytest.raises(KeyboardInterrupt):
        run.ask(2)
    assert (tmp_path / "answers.jsonl").read_text().count("\n") == 1
    taken_up = Run(tmp_path)  # the answer is in place, and no one has seen it: it counts
    assert len(taken_up.kept) == 2
    assert (tmp_path / "answers.jsonl").read_text().count("\n") == 2
    assert len(taken_up.ask(4)) == 4


def test_half_written_answers_go_when_a_run_is_taken_up(tmp_path):
    Run(tmp_path).ask(1)
    (tmp_path / ".answer-000001.safetensors.12345678.partial").write_bytes(b"half")
    Run(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "answer-000000.safetensors",
        "answers.jsonl",
        "ledger.jsonl",
    ]
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.glob("answer*"))


def test_a_reopened_ledger_needs_the_answers_it_paid_for(tmp_path):
    Run(tmp_path).ask(1)
    ledger = Ledger.reopened(BUDGET, tmp_path / "ledger.jsonl")
    with pytest.raises(ConfigError, match="pays for kept answers, or for the same ones again"):
        Curator(records_for(FACTS), FACTS, ledger, seeded_noise(0))
    assert not Ledger.reopened(BUDGET, tmp_path / "nothing.jsonl").is_reopened


def test_gradients_are_not_kept_and_therefore_not_answered(tmp_path):
    run = Run(tmp_path)
    question = GradientQuestion(sampling_rate=0.5, clip_norm=1.0, noise_multiplier=9.0)
    with pytest.raises(ConfigError, match="gradient questions are not kept"):
        run.curator.gradient(question, lambda parameters, image, label: image.sum(), {"w": torch.zeros(1)})
    assert not (tmp_path / "ledger.jsonl").exists()


def test_a_kept_answer_names_its_question_and_nothing_of_the_records(tmp_path):
    Run(tmp_path).ask(1)
    import safetensors

    with safetensors.safe_open(tmp_path / "answer-000000.safetensors", framework="pt") as file:
        assert json.loads(file.metadata()["question"]) == {
            "kind": "TotalQuestion",
            "bound": 1.0,
            "noise_multiplier": 10.0,
            "by_class": True,
        }
        assert file.keys() == ["answer"]


def test_without_noise_nothing_is_drawn_for_a_kept_answer(tmp_path):
    budget = PrivacyBudget(epsilon=float("inf"))
    clean = TotalQuestion(bound=1.0, noise_multiplier=0.0)

    def run():
        ledger, kept = take_up(budget, tmp_path / "ledger.jsonl", tmp_path)
        return Curator(records_for(FACTS), FACTS, ledger, seeded_noise(1), kept=kept)

    first = run().total(clean, lambda image, label: image.flatten())
    assert torch.equal(first, run().total(clean, lambda image, label: image.flatten()))
    assert read(tmp_path / "ledger.jsonl")[1] == (
        GaussianEvent(question="total", sampling_rate=1.0, noise_multiplier=0.0),
    )
