"""`privset measure` and `privset distil` as a user types them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from privset.cli import console, main
from privset.methods import Moments

TINY = "--networks 3 --width 4 --depth 2 --resolution 2 --waves 8 --steps 4 --networks-per-step 2 --pool 0"
TINY = [*TINY.split(), "--per-class", "2"]
BUDGET = ["--epsilon", "5", "--accountant", "rdp"]


def own_data(path):
    rng = np.random.default_rng(0)
    np.savez(path, x=rng.integers(0, 255, (60, 8, 8), dtype=np.uint8), y=np.arange(60) % 3)
    return path


@pytest.fixture(scope="module")
def statistics(tmp_path_factory):
    folder = tmp_path_factory.mktemp("measured")
    data = own_data(folder / "own.npz")
    assert main(["measure", str(data), *BUDGET, *TINY, "--out", str(folder / "statistics")]) == 0
    data.unlink()  # nothing below needs it
    return folder / "statistics"


def test_statistics_are_distilled_without_data_and_verified(call, statistics, tmp_path):
    code, out, err = call("distil", statistics, "--per-class", 3, "--seed", 4, "--out", tmp_path / "set")
    assert code == 0, err
    assert "9 synthetic images distilled from statistics" in out
    code, out, _ = call("verify", tmp_path / "set", "--source", statistics, "--json")
    assert code == 0
    assert "source" in [check["name"] for check in json.loads(out)["checks"]]
    assert call("verify", statistics)[0] == 0


def test_measure_and_distil_speak_json(call, tmp_path):
    data = own_data(tmp_path / "own.npz")
    code, out, _ = call("measure", data, *BUDGET, *TINY, "--out", tmp_path / "statistics", "--json")
    assert code == 0
    assert json.loads(out)["private"] is True
    assert json.loads(out)["numbers"] > 100
    words = ["--steps", 2, "--out", tmp_path / "set", "--json"]  # options first: the folder is found all the same
    code, out, _ = call("distil", *words, tmp_path / "statistics")
    assert code == 0
    made = json.loads(out)
    assert made["images"] == 6  # as it was measured with
    assert made["epsilon"] <= 5
    certificate = json.loads((tmp_path / "set" / "certificate.json").read_text())
    assert certificate["configuration"]["steps"] == 2


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--width", "5"], "measured with width 4, and no set can be distilled from them with 5"),
        (["--per-class", "0"], "per-class must be at least 1"),
        (["--device", "tpu"], "device must be cpu, cuda or cuda:N"),
        (["--epsilon", "1"], "--epsilon"),
        (["--noise-seed", "1"], "--noise-seed"),
    ],
)
def test_what_cannot_be_distilled_is_refused_with_a_sentence(call, statistics, tmp_path, words, sentence):
    code, out, err = call("distil", statistics, "--out", tmp_path / "set", *words)
    assert code == 2
    assert out == ""
    assert sentence in " ".join(err.replace("│", " ").split())
    assert list(tmp_path.iterdir()) == []


def test_the_other_kind_of_release_is_refused_with_what_to_do(call, statistics, tmp_path):
    code, _, err = call("evaluate", statistics, "--data", "digits")
    assert code == 2
    assert "make a set from them with `privset distil" in err
    assert call("distil", statistics, "--out", tmp_path / "set")[0] == 0
    code, _, err = call("distil", tmp_path / "set", "--out", tmp_path / "other")
    assert code == 2
    assert "give the folder that `privset measure` wrote" in err
    code, _, err = call("distil", statistics, "--out", tmp_path / "set")
    assert code == 2
    assert "exists already" in err


def test_other_versions_of_torch_are_pointed_out(call, statistics, tmp_path, monkeypatch):
    from privset.cli import distil

    monkeypatch.setattr(distil, "versions", lambda: {"torch": "1.0"})
    _, _, err = call("distil", statistics, "--out", tmp_path / "set")
    assert "should it make other networks from the same seed" in err


@pytest.mark.parametrize("command", ["measure", "generate"])
def test_an_interrupted_run_says_how_to_go_on_and_goes_on(call, tmp_path, monkeypatch, command):
    data = own_data(tmp_path / "own.npz")
    words = [command, data, *BUDGET, *TINY, "--out", tmp_path / "out"]
    step = console.Bars.step

    def interrupt(self, count=1, **values):
        step(self, count, **values)
        if self._name == "measuring" and self._done == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(console.Bars, "step", interrupt)
    code, _, err = call(*words)
    assert code == 130
    assert "the same command goes on from there" in err
    monkeypatch.undo()
    code, _, err = call(*words[:-1], tmp_path / "out", "--width", "5")
    assert code == 2
    assert "width was 4 and is 5" in err
    code, _, err = call(*words)
    assert code == 0, err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "own.npz"]
    assert call("verify", tmp_path / "out")[0] == 0


@pytest.mark.parametrize("kept", [False, True])
def test_a_distillation_that_is_interrupted_says_what_is_kept_and_then_that_it_goes_on(
    call, statistics, tmp_path, monkeypatch, kept
):
    def interrupted(_, measured, *, checkpoint, **options):
        if kept:
            (checkpoint.path.parent / "answer-000000.safetensors").write_bytes(b"")
        raise KeyboardInterrupt

    words = ["distil", statistics, "--out", tmp_path / "set"]
    with monkeypatch.context() as patch:
        patch.setattr(Moments, "distil", interrupted)
        code, _, err = call(*words)
    assert code == 130
    assert ("nothing had been kept yet; to begin again costs nothing" in err) != kept
    assert ("set.unfinished; the same command goes on from there" in err) == kept  # which holds no secret
    assert (tmp_path / "set.unfinished").exists() == kept
    code, _, err = call(*words)
    assert code == 0, err
    assert (f"Going on from {tmp_path / 'set.unfinished'}: nothing is charged again." in err) == kept


@pytest.mark.parametrize("words", [["methods"], ["generate", "--help"]])
def test_a_reader_that_has_seen_enough_ends_a_command_quietly(words):
    privset = Path(sys.executable).parent / "privset"
    process = subprocess.Popen([privset, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    said = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait() == 128 + signal.SIGPIPE
    assert said == ""


def test_moments_is_the_default(call):
    code, out, _ = call("plan", "digits", "--epsilon", "1", "--accountant", "rdp", "--json")
    assert code == 0
    plan = json.loads(out)
    assert plan["method"] == "moments"
    assert {event["question"] for event in plan["events"]} == {"total"}


@pytest.mark.parametrize(("device", "networks"), [("cpu", None), ("cuda:1", 40)])
def test_a_plan_is_that_of_the_device_also_where_there_is_none(call, device, networks):
    words = ["plan", "digits", "--epsilon", "1", "--accountant", "rdp", "--json", "--device", device]
    code, out, err = call(*words)
    assert code == 0, err
    expected = networks or Moments.preset("light", per_class=10, epsilon=1.0).networks
    assert json.loads(out)["questions"] == 1 + 2 * expected
    code, _, err = call(*words[:-1], "tpu")
    assert code == 2
    assert "device must be cpu, cuda or cuda:N" in err


def test_a_killed_process_is_taken_up_by_the_same_command(call, tmp_path):
    data = own_data(tmp_path / "own.npz")
    # Enough networks that the kill comes before the end.
    words = [str(data), *BUDGET, *TINY, "--networks", "300", "--noise-seed", "1", "--out", str(tmp_path / "statistics")]
    privset = Path(sys.executable).parent / "privset"
    process = subprocess.Popen([privset, "measure", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wanted, deadline = tmp_path / "statistics.unfinished" / "answer-000020.safetensors", time.monotonic() + 120
    while not wanted.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert wanted.exists()
    assert not (tmp_path / "statistics").exists()
    assert call("measure", *words)[0] == 0
    words[-1] = str(tmp_path / "whole")
    assert call("measure", *words)[0] == 0
    tensors = [(tmp_path / name / "statistics.safetensors").read_bytes() for name in ("statistics", "whole")]
    assert tensors[0] == tensors[1]
