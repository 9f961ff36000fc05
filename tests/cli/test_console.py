import io
import re

import pytest
from rich.console import Console
from tests.conftest import TINY

from privset import pipeline
from privset.cli import console
from privset.cli.console import Bars
from privset.cli.generate import stopping
from privset.methods import METHODS


@pytest.fixture
def terminal(monkeypatch):
    """A terminal that keeps what it is shown."""
    screen = Console(file=io.StringIO(), force_terminal=True, width=160, highlight=False, color_system=None)
    monkeypatch.setattr(console, "ERR", screen)
    return screen


def watch(monkeypatch, bars, clock):
    """Have it take this clock for the time."""
    monkeypatch.setattr(bars._bars, "get_time", lambda: clock[0])
    monkeypatch.setattr("privset.cli.console.time.monotonic", lambda: clock[0])


def test_a_terminal_shows_phase_step_time_end_budget_and_preview(terminal, monkeypatch):
    clock = [0.0]
    with Bars() as bars:
        watch(monkeypatch, bars, clock)
        bars.phase("distilling", 100)
        for _ in range(10):
            clock[0] += 2.0
            bars.step(distance=0.25)
        bars.spent(0.99951, 1.0)
        bars.note("preview", "preview in set.preview.png")
        bars._bars.refresh()
    last = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.file.getvalue().split("distilling")[-1])
    assert "10/100" in last
    assert "0:00:20" in last  # elapsed
    assert re.search(r"3:00 left, until \d\d:\d\d", last)
    assert "distance 0.25" in last
    assert "epsilon 0.9996 of 1 spent; preview in set.preview.png" in last


def test_steps_of_a_run_that_was_stopped_say_nothing_about_its_pace(terminal, monkeypatch):
    clock = [0.0]
    with Bars() as bars:
        watch(monkeypatch, bars, clock)
        bars.phase("distilling", 100)
        bars.step(50)
        for _ in range(10):
            clock[0] += 2.0
            bars.step()
        assert bars._pace.left() == 80.0


def test_steps_that_come_together_do_not_make_the_end_swing(monkeypatch, capsys):
    """As ten answers at a point of a network's training, after a pause: each of them says nothing about the pace."""
    clock, ends = [100.0], []
    monkeypatch.setattr(console, "ERR", Console(stderr=True, soft_wrap=True))
    monkeypatch.setattr("privset.cli.console.time.monotonic", lambda: clock[0])
    bars = Bars()
    bars.phase("matching", 1000)
    bars.step(100)  # of a run that was stopped
    bars.lap()
    for point in range(10):
        clock[0] += 7.0 if point == 0 else 40.0
        for _ in range(10):
            clock[0] += 2.0
            bars.step()
            if point > 1:
                ends.append(clock[0] + bars._pace.left())
        bars.lap()
    assert bars._pace.left() == 80 * 60.0
    assert ends == [100.0 + 27.0 + 89 * 60.0] * 80
    lines = [line for line in capsys.readouterr().err.splitlines() if "left" in line]
    assert len(lines) >= 8


@pytest.mark.parametrize(("seconds", "said"), [(3.0, 0), (300.0, 1)])
def test_of_a_phase_that_will_take_long_it_is_said_early_and_once(monkeypatch, capsys, seconds, said):
    clock = [100.0]
    monkeypatch.setattr(console, "ERR", Console(stderr=True, soft_wrap=True))
    monkeypatch.setattr("privset.cli.console.time.monotonic", lambda: clock[0])
    bars = Bars()
    for name in ("preparing", "matching"):
        bars.stopping = "Ctrl-C stops it." if name == "matching" else ""
        bars.phase(name, 100)
        for _ in range(5):
            clock[0] += seconds
            bars.step()
    lines = [line for line in capsys.readouterr().err.splitlines() if "will take" in line]
    assert len(lines) == said
    for line in lines:  # after the third step
        assert re.fullmatch(r"matching will take about 8:05:00 more, until .*\d\d:\d\d\. Ctrl-C stops it\.", line)


def test_elsewhere_a_line_says_the_same_now_and_then(monkeypatch, capsys):
    clock = [100.0]
    monkeypatch.setattr(console, "ERR", Console(stderr=True, soft_wrap=True))
    monkeypatch.setattr("privset.cli.console.time.monotonic", lambda: clock[0])
    bars = Bars()
    bars.spent(0.5, 1.0)
    bars.phase("refining", 110)
    clock[0] += 4.0  # preparations
    bars.step(10)  # of a run that was stopped
    for _ in range(17):
        clock[0] += 1.0
        bars.step()
    begun, line = capsys.readouterr().err.splitlines()
    assert begun == "refining ..."
    assert line.startswith("refining: 17 of 110, 0:11 gone, about 1:33 left, until ")
    assert line.endswith("; epsilon 0.5 of 1 spent")


def test_elsewhere_a_line_says_what_begins_before_it_takes_its_time(call, monkeypatch):
    said = []
    monkeypatch.setattr(console, "warn", said.append)
    original = pipeline.plan
    monkeypatch.setattr(pipeline, "plan", lambda *a, **b: said.append("planning") or original(*a, **b))
    assert call("plan", "digits", "--epsilon", "1", "--accountant", "rdp", "--method", "dp-merf")[0] == 0
    assert said[-2:] == ["calibrating the noise ...", "planning"]


def test_a_terminal_has_bars_and_no_such_line(terminal):
    with Bars() as bars:
        bars.phase("calibrating the noise", 0)
    assert "..." not in terminal.file.getvalue()


def test_a_run_says_early_what_becomes_of_it_if_it_is_stopped(call, tmp_path, monkeypatch):
    monkeypatch.setattr(console, "_LONG_SECONDS", 0.0)
    monkeypatch.setattr(console, "_QUIET_SECONDS", 0.0)
    psg = "--runs 4 --outer-steps 2 --batches-per-step 2 --inner-epochs 1 --batch-size 64 --network mlp --width 8"
    words = ["--per-class", 2, "--epsilon", "10", "--accountant", "rdp", "--noise-seed", "1", "--out", tmp_path / "set"]
    code, _, err = call("generate", "digits", "--method", "psg", *psg.split(), *words)
    assert code == 0, err
    said = " ".join(err.split())
    assert said.count("matching gradients will take about") == 1
    assert "Ctrl-C stops it; the same command goes on from what was kept" in said
    assert "It cannot be stopped and gone on with: what it has charged by then is lost" in stopping(
        METHODS["gs-wgan"](TINY["gs-wgan"])
    )
