"""The benchmark of whole releases, with a stand-in for the command that makes and evaluates them."""

import json
import sys

import pytest

STAND_IN = """
import json, pathlib, sys, time
if sys.argv[1] == "generate":
    time.sleep(0.2)
    folder = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
    folder.mkdir()
    method = sys.argv[sys.argv.index("--method") + 1] if "--method" in sys.argv else "by itself"
    (folder / "certificate.json").write_text(json.dumps({"method": method}))
else:
    runs = int(sys.argv[sys.argv.index("--runs") + 1])
    accuracy = {"mean": 90.0, "std": 0.0, "runs": [90.0] * runs}
    said = {"accuracy": accuracy, "classifier": "convnet", "recipe": "paper", "seeds": [1] * runs, "seconds": 3.5}
    print(json.dumps(said))
"""


@pytest.fixture
def benchmark(monkeypatch, benchmark_named):
    found = benchmark_named("release")
    monkeypatch.setattr(found, "PRIVSET", [sys.executable, "-c", STAND_IN])
    return found


def run(benchmark, folder, *words):
    benchmark.main(["digits", "--results", str(folder), *words])
    (path,) = (folder / "speed").iterdir()
    return path.name, json.loads(path.read_bytes())


def test_the_release_and_the_training_are_timed_apart(benchmark, tmp_path):
    name, found = run(benchmark, tmp_path)
    assert name == "release-digits-eps1-ipc10-cpu.json"
    assert 0.2 <= found["value"] < 60
    assert found["training"] == {"networks": 3, "seconds": 3.5}
    assert (found["method"], len(found["accuracy"]["runs"]), found["device"]) == ("by itself", 3, "cpu")
    assert {"what", "command", "commit", "versions", "cores", "noise"} <= found.keys()


def test_another_method_has_files_of_its_own_and_nothing_need_be_trained(benchmark, tmp_path):
    words = ["--method", "dp-merf", "--epsilon", "10", "--per-class", "6000", "--networks", "0"]
    name, found = run(benchmark, tmp_path, *words)
    assert name == "dp-merf-release-digits-eps10-ipc6000-cpu.json"
    assert found["method"] == "dp-merf"
    assert found["what"] == "privset generate digits --method dp-merf --epsilon 10 --per-class 6000 --device cpu"
    assert not {"accuracy", "training"} & found.keys()
