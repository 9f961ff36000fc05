import errno
import io
import json
import os

import pytest

from privset.errors import BudgetError, ReleaseError
from privset.observer import Observer
from privset.privacy import BudgetExceeded, GaussianEvent, Ledger, PrivacyBudget
from privset.privacy.accounting import merge
from privset.privacy.ledger import read

BUDGET = PrivacyBudget(epsilon=2.0)
EVENT = GaussianEvent(question="total", sampling_rate=1.0, noise_multiplier=5.0)
OTHER = GaussianEvent(question="votes", sampling_rate=1.0, noise_multiplier=10.0)


def test_a_charge_is_on_disk_when_it_returns(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(BUDGET, path)
    assert not path.exists()  # nothing asked, nothing written
    ledger.charge(EVENT)
    ledger.charge(EVENT)
    budget, events = read(path)
    assert budget == BUDGET
    assert events == ledger.events
    assert events[0].count == 2


def test_a_charge_is_synced_before_it_returns(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    Ledger(BUDGET, tmp_path / "ledger.jsonl").charge(EVENT)
    assert len(synced) == 2  # the file, and the folder that holds its name


def test_what_is_spent_is_told_once_it_is_on_disk(tmp_path):
    path, told = tmp_path / "ledger.jsonl", []

    class Listener(Observer):
        def spent(self, epsilon, budget):
            told.append((len(path.read_text().splitlines()) - 1, epsilon, budget))
            if len(told) == 2:
                raise KeyboardInterrupt

    ledger = Ledger(BUDGET, path, Listener())
    ledger.charge(EVENT)
    with pytest.raises(KeyboardInterrupt):
        ledger.charge(EVENT)
    assert [charges for charges, _, _ in told] == [1, 2]
    assert told[0][1] < told[1][1] <= told[0][2] == BUDGET.epsilon
    assert read(path)[1] == ledger.events  # whatever an observer does, what is charged stays charged
    assert ledger.events[0].count == 2
    Ledger.reopened(BUDGET, path, Listener())
    assert told[2] == told[1]


def test_a_charge_past_the_budget_is_refused_and_not_written(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(BUDGET, path)
    ledger.charge(EVENT)
    before = path.read_bytes()
    with pytest.raises(BudgetExceeded, match=r"past the budget of 2; nothing was answered"):
        ledger.charge(GaussianEvent(question="total", sampling_rate=1.0, noise_multiplier=1.0))
    assert path.read_bytes() == before
    assert ledger.events == (EVENT,)


def test_several_charges_are_lines_of_their_own_in_their_order_and_synced_at_once(tmp_path, monkeypatch):
    path, synced = tmp_path / "ledger.jsonl", []
    monkeypatch.setattr(os, "fsync", synced.append)
    ledger = Ledger(BUDGET, path)
    ledger.charge(OTHER, EVENT, OTHER)
    assert len(synced) == 2  # the file, and the folder that holds its name
    lines = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    assert [line["noise_multiplier"] for line in lines] == [10.0, 5.0, 10.0]
    assert read(path)[1] == ledger.events == merge([OTHER, EVENT, OTHER])


def test_of_several_charges_that_pass_the_budget_together_none_is_written(tmp_path):
    path, dear = tmp_path / "ledger.jsonl", GaussianEvent(question="total", sampling_rate=1.0, noise_multiplier=2.1)
    for event in (EVENT, dear):
        Ledger(BUDGET).charge(event)  # each would fit
    ledger = Ledger(BUDGET, path)
    with pytest.raises(BudgetExceeded, match=r"multiplier 5 and 1 more 'total' answer\(s\) at noise multiplier 2.1"):
        ledger.charge(EVENT, dear)
    assert not path.exists()
    assert ledger.events == ()


def test_several_charges_of_a_run_that_goes_on_are_taken_from_those_on_file_and_only_if_none_is_refused(tmp_path):
    path, dear = tmp_path / "ledger.jsonl", GaussianEvent(question="total", sampling_rate=1.0, noise_multiplier=1.0)
    Ledger(BUDGET, path).charge(EVENT, EVENT, OTHER)
    before, ledger = path.read_bytes(), Ledger.reopened(BUDGET, path)
    with pytest.raises(BudgetExceeded):
        ledger.charge(EVENT, OTHER, dear)
    ledger.charge(EVENT, OTHER)
    assert path.read_bytes() == before
    ledger.charge(EVENT, OTHER)  # of which the first is on file
    assert ledger.events == read(path)[1] == merge([EVENT] * 2 + [OTHER] * 2)
    ledger.charge(OTHER, EVENT)
    assert ledger.events == read(path)[1] == merge([EVENT] * 3 + [OTHER] * 3)


class _FullDisk(io.StringIO):
    """Takes some characters of what is written, and no more."""

    def __init__(self, file, room):
        super().__init__()
        self._file, self._room = file, room

    def write(self, text):
        self._file.write(text[: self._room])
        self._file.flush()
        if len(text) > self._room:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._room -= len(text)
        return len(text)

    def fileno(self):
        return self._file.fileno()

    def __exit__(self, *error):
        self._file.close()


@pytest.mark.parametrize("room", [5, 150, 300])
@pytest.mark.parametrize("first", [True, False])
def test_what_a_full_disk_took_of_several_charges_is_taken_back(tmp_path, monkeypatch, first, room):
    path, ledger, real = tmp_path / "ledger.jsonl", None, open
    ledger = Ledger(BUDGET, path)
    if not first:
        ledger.charge(OTHER)
    before = None if first else path.read_bytes()
    monkeypatch.setattr(
        "builtins.open",
        lambda name, how="r", **more: (
            _FullDisk(real(name, how, **more), room) if how in "xa" else real(name, how, **more)
        ),
    )
    with pytest.raises(BudgetError, match=r"cannot be written \(No space left on device\); nothing was answered"):
        ledger.charge(EVENT, EVENT, EVENT)
    monkeypatch.undo()

    assert (path.read_bytes() if path.exists() else None) == before
    ledger.charge(EVENT)
    assert read(path)[1] == ledger.events == merge([EVENT] if first else [OTHER, EVENT])


def test_a_ledger_that_cannot_be_mended_takes_no_more_charges(tmp_path, monkeypatch):
    path, real = tmp_path / "ledger.jsonl", open
    ledger = Ledger(BUDGET, path)
    ledger.charge(OTHER)

    def failing(name, how="r", **more):
        if how == "r+b":
            raise OSError(errno.EIO, "Input/output error")
        return _FullDisk(real(name, how, **more), 20) if how == "a" else real(name, how, **more)

    monkeypatch.setattr("builtins.open", failing)
    with pytest.raises(BudgetError, match="nothing was answered"):
        ledger.charge(EVENT)
    monkeypatch.undo()
    with pytest.raises(BudgetError, match=r"written in part, .* nothing is answered any more\. Make room on the disk"):
        ledger.charge(EVENT)


def test_a_file_that_another_run_made_is_left_alone_where_a_first_charge_fails(tmp_path, monkeypatch):
    path, real = tmp_path / "ledger.jsonl", open
    path.write_text("another's")

    def failing(name, how="r", **more):
        if how == "x":
            raise OSError(errno.EMFILE, "Too many open files")
        return real(name, how, **more)

    monkeypatch.setattr("builtins.open", failing)
    with pytest.raises(BudgetError, match="Too many open files"):
        Ledger(BUDGET, path).charge(EVENT)
    monkeypatch.undo()
    assert path.read_text() == "another's"


def test_a_ledger_that_was_removed_is_not_begun_again(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(BUDGET, path)
    ledger.charge(EVENT)
    path.unlink()
    with pytest.raises(BudgetError, match="cannot be written"):
        ledger.charge(OTHER)
    assert not path.exists()


def test_the_accountant_of_the_budget_decides(tmp_path):
    # Epsilon 1.05 by RDP, 0.97 by PLD.
    event = GaussianEvent(question="total", sampling_rate=1.0, noise_multiplier=3.85)
    Ledger(PrivacyBudget(epsilon=1.0, accountant="pld")).charge(event)
    Ledger(PrivacyBudget(epsilon=1.0)).charge(event)
    with pytest.raises(BudgetExceeded):
        Ledger(PrivacyBudget(epsilon=1.0, accountant="rdp")).charge(event)


def test_the_ledger_of_an_unfinished_run_is_never_taken_over(tmp_path):
    path = tmp_path / "set.ledger.jsonl"
    Ledger(BUDGET, path).charge(EVENT)
    before = path.read_bytes()
    with pytest.raises(BudgetError, match="by a run that did not finish") as refusal:
        Ledger(BUDGET, path).charge(EVENT)
    assert "preview picture (set.preview.png)" in str(refusal.value)  # seen by whoever ran it
    assert "curves in TensorBoard" in str(refusal.value)
    assert path.read_bytes() == before


def test_a_ledger_torn_by_a_crash_still_stops_the_next_run(tmp_path):
    path = tmp_path / "ledger.jsonl"
    Ledger(BUDGET, path).charge(EVENT)
    path.write_text(path.read_text()[:-20])
    with pytest.raises(BudgetError, match="its last line is torn"):
        Ledger(BUDGET, path).charge(EVENT)


def test_an_infinite_budget_can_be_written_and_read(tmp_path):
    path = tmp_path / "ledger.jsonl"
    budget = PrivacyBudget(epsilon=float("inf"))
    Ledger(budget, path).charge(GaussianEvent(question="total", sampling_rate=1.0, noise_multiplier=0.0))
    assert json.loads(path.read_text().splitlines()[0])["epsilon"] == "inf"
    assert read(path)[0] == budget


@pytest.mark.parametrize(
    ("text", "line"),
    [("", 1), ("{}\n", 1), ("not json\n", 1), ('GOOD{"question": "total"}\n', 2), ("GOOD{\n", 2)],
)
def test_a_damaged_ledger_is_an_error_that_names_the_line(tmp_path, text, line):
    path = tmp_path / "ledger.jsonl"
    Ledger(BUDGET, path).charge(EVENT)
    path.write_text(text.replace("GOOD", path.read_text().splitlines()[0] + "\n"))
    with pytest.raises(ReleaseError, match=f"line {line} of the ledger is damaged"):
        read(path)
