"""`privset study` as a user types it."""

import json

import pytest

from privset.studies import runner


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


def test_a_failure_exits_with_1_and_is_told(call, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(runner.pipeline, "generate", fail)
    code, out, _ = call("study", "run", "smoke", "--results", tmp_path)
    assert code == 1
    assert "FAILED digits-eps10-ipc1.1: RuntimeError: out of memory" in out
    assert "2 failed" in out


def test_without_time_everything_is_left(call, tmp_path):
    code, out, _ = call("study", "run", "smoke", "--results", tmp_path, "--budget-minutes", 0)
    assert code == 0
    assert "2 left for want of time" in out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            "run nosuch",
            "there is no study 'nosuch'; there are moments, settings, psg, psg-prior, dp-merf, real, dp-sgd",
        ),
        ("show nosuch", "there is no study 'nosuch'"),
        ("run smoke --cells nosuch --jobs 2", "no cell 'nosuch'; it has digits-eps10-ipc1"),
        ("run smoke --shard 3/2", "shard must be i/n"),
        ("run smoke --shard half", "shard must be i/n"),
        ("run smoke --jobs 0", "jobs must be at least 1"),
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


def test_help_names_the_actions_and_their_settings(call):
    code, out, _ = call("study", "--help")
    assert code == 0
    assert "run NAME" in out
    code, out, _ = call("study", "run", "--help")
    assert code == 0
    assert "--budget-minutes" in out


def test_show_says_what_failed_and_where_it_looks(call, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("out of luck")

    _, out, _ = call("study", "show", "smoke", "--results", tmp_path / "nowhere")
    assert "There is no folder" in out
    monkeypatch.setattr(runner.pipeline, "generate", fail)
    assert call("study", "run", "smoke", "--results", tmp_path)[0] == 1
    _, out, _ = call("study", "show", "smoke", "--results", tmp_path)
    assert out.count("failed: digits-eps10-ipc1, RuntimeError: out of luck") == 2
