"""`privset study` as a user types it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from privset.errors import InUseError
from privset.studies import STUDIES, runner


def test_list_run_and_show(call, tmp_path, monkeypatch):
    _, out, _ = call("study", "list")
    assert "moments" in out
    assert "smoke" in out
    assert json.loads(call("study", "list", "--json")[1])["studies"][-1]["cells"] == ["digits-eps10-ipc1"]

    _, out, _ = call("study", "show", "smoke", "--results", tmp_path)
    assert "missing: 1 of 1 cells, not begun: digits-eps10-ipc1" in out
    _, out, _ = call("study", "show", "baselines", "--results", tmp_path)
    assert len(out.splitlines()) == 3
    assert out.rstrip().endswith(", ... (all in --json)")

    # Two processes, each with a set of its own.
    code, out, _ = call("study", "run", "smoke", "--results", tmp_path, "--jobs", 2, "--data-dir", tmp_path, "--json")
    assert code == 0
    assert sorted(json.loads(out)["finished"]) == ["digits-eps10-ipc1.0", "digits-eps10-ipc1.1"]

    monkeypatch.setattr(runner.pipeline, "generate", lambda *_, **__: pytest.fail("a finished set was made again"))
    code, out, _ = call("study", "run", "smoke", "--results", tmp_path)
    assert code == 0
    assert "0 set(s) finished, 2 on file already" in out

    _, out, _ = call("study", "show", "smoke", "--results", tmp_path)
    assert "missing" not in out
    assert "outdated" not in out
    _, header, row = out.splitlines()
    assert header.split()[:3] == ["cell", "epsilon", "per"]
    assert row.split()[:3] == ["digits-eps10-ipc1", "10", "1"]
    assert " ± " in row
    shown = json.loads(call("study", "show", "smoke", "--results", tmp_path, "--json")[1])
    assert shown["cells"][0]["accuracy"]["mean"] > 0
    assert shown["cells"][0]["command"].startswith("privset study run smoke")
    assert str(tmp_path) not in (tmp_path / "smoke" / "digits-eps10-ipc1.json").read_text()
    assert shown["missing"] == shown["outdated"] == []

    place = tmp_path / "smoke" / "digits-eps10-ipc1.json"
    place.write_text(place.read_text().replace('"epsilon": 10.0', '"epsilon": 9.0', 1))
    for action in ("show", "run"):
        code, out, _ = call("study", action, "smoke", "--results", tmp_path)
        assert code == 0
        assert "outdated: digits-eps10-ipc1 was measured with other settings; delete its file" in out


def raising(error):
    def fail(*_, **__):
        raise error

    return fail


def test_a_failure_exits_with_1_and_is_told(call, tmp_path, monkeypatch):
    monkeypatch.setattr(runner.pipeline, "generate", raising(RuntimeError("out of memory")))
    code, out, _ = call("study", "run", "smoke", "--results", tmp_path)
    assert code == 1
    assert "FAILED digits-eps10-ipc1.1: RuntimeError: out of memory" in out
    assert "2 failed" in out
    _, out, _ = call("study", "show", "smoke", "--results", tmp_path)
    assert "failed: digits-eps10-ipc1, RuntimeError: out of memory" in out
    assert "not begun" not in out
    shown = json.loads(call("study", "show", "smoke", "--results", tmp_path, "--json")[1])
    assert shown["failed"] == {"digits-eps10-ipc1": ["RuntimeError: out of memory"] * 2}


def is_running(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(what, seconds=60):
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end
        time.sleep(0.005)
    return found


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="who started whom is read from /proc")
def test_processes_that_share_the_work_end_when_the_one_that_started_them_is_killed(tmp_path):
    command = [sys.executable, "-m", "privset", "study", "run", "smoke", "--results", tmp_path, "--jobs", "2"]

    def in_the_background():  # as a shell starts what it puts there
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=in_the_background
    ) as parent:
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
        workers = wait_until(lambda: len(found := children.read_text().split()) == 2 and found)
        wait_until(lambda: list(tmp_path.glob("smoke/.parts/*")))  # at work
        for worker in workers:  # held where they are, so that none is done before the other process is gone
            os.kill(int(worker), signal.SIGSTOP)
        parent.send_signal(signal.SIGKILL)
    for worker in workers:
        os.kill(int(worker), signal.SIGCONT)
    wait_until(lambda: not any(map(is_running, workers)), seconds=20)
    assert not (tmp_path / "smoke" / "digits-eps10-ipc1.json").exists()


def test_a_set_that_another_process_is_making_is_left_to_it(call, tmp_path, monkeypatch):
    monkeypatch.setattr(runner.pipeline, "generate", raising(InUseError("another process is writing")))
    code, out, _ = call("study", "run", "smoke", "--results", tmp_path)
    assert code == 0
    assert "0 failed, 0 left for want of time, 2 being made by another process" in out


def test_what_is_begun_is_said_to_be(call, tmp_path):
    (tmp_path / "smoke" / ".parts" / "digits-eps10-ipc1.0.01234567").mkdir(parents=True)
    _, out, _ = call("study", "show", "smoke", "--results", tmp_path)
    assert "missing: digits-eps10-ipc1, 0 of 2 sets finished" in out


def test_without_time_everything_is_left(call, tmp_path):
    code, out, _ = call("study", "run", "smoke", "--results", tmp_path, "--budget-minutes", 0)
    assert code == 0
    assert "2 left for want of time, 0 being made by another process" in out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            "run nosuch",
            f"there is no study 'nosuch'; there are {', '.join(STUDIES)}",
        ),
        ("show nosuch", "there is no study 'nosuch'"),
        ("run smoke --cells nosuch --jobs 2", "no cell 'nosuch'; it has digits-eps10-ipc1"),
        ("run smoke --shard 3/2", "shard must be i/n"),
        ("run smoke --shard half", "shard must be i/n"),
        ("run smoke --jobs 0", "jobs must be at least 1"),
        ("run smoke --budget-minutes nan", "budget-minutes must be 0 or more, not nan"),
        ("run smoke --budget-minutes -1", "budget-minutes must be 0 or more, not -1"),
        ("walk", "study can list, run, show, not 'walk'"),
    ],
)
def test_what_cannot_work_is_refused_with_a_sentence(call, monkeypatch, tmp_path, words, sentence):
    monkeypatch.chdir(tmp_path)
    code, out, err = call("study", *words.split())
    assert code == 2
    assert out == ""
    assert sentence in " ".join(err.split())
    assert list(tmp_path.iterdir()) == []


def test_a_results_folder_that_is_none_is_refused_with_a_sentence(call, tmp_path):
    (tmp_path / "taken").write_text("something else")
    for words in (["run", "smoke"], ["show", "smoke"]):
        code, _, err = call("study", *words, "--results", tmp_path / "taken")
        assert code == 2
        assert "--results" in err
    assert (tmp_path / "taken").read_text() == "something else"


@pytest.mark.parametrize("content", ["{", "{}", "[]", '{"recipes": 1, "settings": {}}'])
def test_a_damaged_result_is_named_with_what_to_do(call, tmp_path, content):
    place = tmp_path / "smoke" / "digits-eps10-ipc1.json"
    place.parent.mkdir()
    place.write_text(content)
    code, _, err = call("study", "show", "smoke", "--results", tmp_path)
    assert code == 2
    assert f"{place} is damaged" in " ".join(err.split())
    assert "delete it, and it is measured again" in " ".join(err.split())
    code, out, _ = call("study", "run", "smoke", "--results", tmp_path)
    assert code == 1
    assert "is damaged" in " ".join(out.split())


def test_help_names_the_actions_and_their_settings(call):
    code, out, _ = call("study", "--help")
    assert code == 0
    assert "run NAME" in out
    code, out, _ = call("study", "run", "--help")
    assert code == 0
    assert "--budget-minutes" in out


def test_show_has_what_is_proven_beside_what_is_claimed(call):
    results = Path(__file__).parents[2] / "results"
    _, out, _ = call("study", "show", "baselines", "--results", results)
    header, row = (line for line in out.splitlines() if line.startswith(("cell", "digits-eps10-gs-wgan-small ")))
    assert header.endswith("claimed, not the guarantee")
    found = json.loads((results / "baselines" / "digits-eps10-gs-wgan-small.json").read_bytes())
    *_, proven, claimed = re.split(" {2,}", row)
    assert (proven, claimed) == ("10", f"{found['claim']['epsilon']:.4g}, replace one record: holds as well")
    assert "claimed" not in call("study", "show", "moments", "--results", results)[1]


def test_show_says_what_failed_and_where_it_looks(call, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("out of luck")

    code, out, err = call("study", "show", "smoke", "--results", tmp_path / "nowhere")
    assert (code, out) == (2, "")
    assert "there is no folder" in err
    monkeypatch.setattr(runner.pipeline, "generate", fail)
    assert call("study", "run", "smoke", "--results", tmp_path)[0] == 1
    _, out, _ = call("study", "show", "smoke", "--results", tmp_path)
    assert out.count("failed: digits-eps10-ipc1, RuntimeError: out of luck") == 2
