import io
import re

import pytest
from rich.console import Console

from privset.cli import console
from privset.cli.console import Bars


@pytest.fixture
def terminal(monkeypatch):
    """A terminal that keeps what it is shown."""
    screen = Console(file=io.StringIO(), force_terminal=True, width=160, highlight=False, color_system=None)
    monkeypatch.setattr(console, "ERR", screen)
    return screen


def test_a_terminal_shows_phase_step_time_end_budget_and_preview(terminal, monkeypatch):
    clock = [0.0]
    with Bars() as bars:
        monkeypatch.setattr(bars._bars, "get_time", lambda: clock[0])
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
        monkeypatch.setattr(bars._bars, "get_time", lambda: clock[0])
        bars.phase("distilling", 100)
        bars.step(50)
        for _ in range(10):
            clock[0] += 2.0
            bars.step()
        assert bars._bars.tasks[0].time_remaining == 80.0


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
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("refining: 17 of 110, 0:11 gone, about 1:33 left, until ")
    assert lines[0].endswith("; epsilon 0.5 of 1 spent")
