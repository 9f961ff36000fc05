"""Ctrl-C, as a terminal sends it."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from privset import pipeline
from privset.cli import console
from privset.cli.arguments import DataArguments
from privset.cli.interrupts import WORDS, held_back, saying


@pytest.fixture(autouse=True)
def in_the_foreground():
    """A shell has what it starts in the background ignore interrupts, tests too."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.01)  # for Python to notice


def test_a_first_interrupt_waits_and_a_second_does_not():
    said = []
    with held_back(said.append) as asked:
        assert not asked()
        interrupt()
        assert asked()
        assert said == [WORDS]
        with pytest.raises(KeyboardInterrupt):
            interrupt()
    with pytest.raises(KeyboardInterrupt):  # as before
        interrupt()


def test_interrupts_that_someone_else_decides_about_are_left_to_them():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with held_back(pytest.fail) as asked:
            interrupt()
            assert not asked()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)

    def elsewhere():  # where no handler can be set
        with held_back(pytest.fail) as asked:
            found.append(asked())

    found = []
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [False]


def test_what_is_said_of_it_can_be_said_in_other_words():
    said = []
    with held_back(said.append, "it would be lost", "all of it"):
        interrupt()
        assert said == ["it would be lost"]
        with pytest.raises(KeyboardInterrupt, match="all of it"):
            interrupt()


def test_as_long_as_nothing_would_be_lost_the_first_interrupt_interrupts(tmp_path, monkeypatch):
    said, ledger = [], tmp_path / "set.ledger.jsonl"
    monkeypatch.setattr(console, "warn", said.append)
    with console.Bars().irrevocable(9.9, ledger):
        with pytest.raises(KeyboardInterrupt, match="nothing was charged"):
            interrupt()
        assert said == []
        ledger.write_text("a charge", encoding="utf-8")
        interrupt()
        assert "what it charges, epsilon 9.9, would be lost" in said[0]
        with pytest.raises(KeyboardInterrupt, match=r"what was charged stays in .*set\.ledger\.jsonl"):
            interrupt()


@pytest.mark.parametrize("seeded", [False, True])
def test_a_run_that_cannot_go_on_is_stopped_by_a_second_interrupt_only(tmp_path, seeded):
    words = "generate digits --method g-pate --preset small --epsilon 10 --steps 4000 --accountant rdp --out"
    log, out = tmp_path / "log", tmp_path / "set"
    with log.open("wb") as file:
        command = [Path(sys.executable).parent / "privset", *words.split(), out]
        more = ["--noise-seed", "1"] if seeded else []
        process = subprocess.Popen([*command, *more], stdout=subprocess.DEVNULL, stderr=file)
        deadline = time.monotonic() + 120
        while b"training a generator" not in log.read_bytes() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        if not seeded:
            time.sleep(1.0)
            assert process.poll() is None
            process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == 130
    said = " ".join(log.read_text().split())
    assert not out.exists()
    assert (tmp_path / "set.ledger.jsonl").exists() != seeded
    if seeded:
        assert "it was not private: nothing is to be counted" in said
    else:
        assert "what it charges, epsilon 10, would be lost. Ctrl-C again stops it all the same." in said
        assert f"stays in {tmp_path / 'set.ledger.jsonl'}, and a new run, with another --out" in said


def stopped(*_args, **_how):
    raise KeyboardInterrupt


@pytest.mark.parametrize(("inner", "outer"), [("this is left", "this is left"), ("", "nothing was charged")])
def test_an_interrupt_that_says_what_is_left_is_left_alone(inner, outer):
    with pytest.raises(KeyboardInterrupt, match=f"^{outer}$"), saying("nothing was charged"):
        raise KeyboardInterrupt(*filter(None, [inner]))


@pytest.mark.parametrize("command", ["generate", "measure"])
@pytest.mark.parametrize("at", ["plan", "load"])
def test_what_is_stopped_before_a_record_is_asked_says_that_it_charged_nothing(
    command, at, call, tmp_path, monkeypatch
):
    monkeypatch.setattr(pipeline if at == "plan" else DataArguments, at, stopped)
    code, _, said = call(command, "digits", "--preset", "light", "--epsilon", "1", "--out", tmp_path / "set")
    assert code == 130
    assert "stopped; nothing was released, and this command has charged nothing" in " ".join(said.split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["generate", "measure"])
def test_what_is_stopped_later_says_where_charges_are(command, call, tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline._Job, "prepare", stopped)
    code, _, said = call(command, "digits", "--preset", "light", "--epsilon", "1", "--out", tmp_path / "set")
    assert code == 130
    assert "stopped; nothing was released; what was charged, if anything was, stays in the ledger" in " ".join(
        said.split()
    )


def test_a_run_that_is_interrupted_early_is_kept(tmp_path):
    words = "generate digits --method psg --preset small --epsilon 10 --runs 400 --noise-seed 1 --accountant rdp --out"
    log, out = tmp_path / "log", tmp_path / "set"
    with log.open("wb") as file:
        command = [Path(sys.executable).parent / "privset", *words.split(), out]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=file)
        deadline = time.monotonic() + 120
        while b"matching gradients" not in log.read_bytes() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(1.0)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == 130
    said = " ".join(log.read_text().split())
    assert WORDS in said
    assert "what was done until" in said  # long before a state is due
    assert (tmp_path / "set.unfinished").exists()
    assert not out.exists()
