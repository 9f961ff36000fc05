"""The main job on built-in data, started as a user starts it."""

import json
import subprocess
import sys
import time
from pathlib import Path

PRIVSET = Path(sys.executable).parent / "privset"


def privset(*words, cwd):
    done = subprocess.run([PRIVSET, *words], cwd=cwd, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_set_made_from_digits_teaches_what_noise_does_not(tmp_path):
    started = time.monotonic()
    small = ["--method", "psg", "--preset", "small", "--runs", "15", "--noise-seed", "7"]
    made = privset(
        "generate", "digits", "--epsilon", "10", "--accountant", "rdp", *small, "--out", "set", "--json", cwd=tmp_path
    )
    assert json.loads(made)["private"] is False  # seeded, so that this test cannot fail by chance
    assert sorted(path.name for path in (tmp_path / "set").iterdir()) == [
        "README.md",
        "certificate.json",
        "config.toml",
        "ledger.jsonl",
        "preview.png",
        "set.safetensors",
    ]
    assert json.loads(privset("verify", "set", "--json", cwd=tmp_path))["ok"]
    words = "--data digits --classifier mlp --recipe quick --runs 1 --beside real noise --json".split()  # noqa: SIM905
    result = json.loads(privset("evaluate", "set", *words, cwd=tmp_path))
    # One answer in ten is right by chance; the noise shows that the bar is not met by the training itself.
    assert result["accuracy"]["mean"] > 50
    assert result["beside"]["noise"]["accuracy"]["mean"] < 25
    assert result["beside"]["real"]["accuracy"]["mean"] > result["accuracy"]["mean"]
    # Under a minute on two cores of its own; here it has one, beside other tests.
    assert time.monotonic() - started < 180
