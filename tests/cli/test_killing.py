"""Processes that are killed, as a machine kills them: the same command ends with the same bytes."""

import random
import signal
import subprocess
import sys
import time

import pytest

from privset.cli.main import main

SETTINGS = {
    "psg": "--runs 12 --outer-steps 2 --batches-per-step 2 --inner-epochs 2 --batch-size 64 --network mlp --width 8",
    "dp-sgd": "--epochs 60",
}
FILES = {"psg": "set.safetensors", "dp-sgd": "classifier.safetensors"}
# The command itself, with a state after each step, which would take longer than a test otherwise.
EAGER = "import sys; from privset.methods import Checkpoint as c; c.seconds = 0.0; from privset.cli.main import main; "


@pytest.mark.parametrize("method", SETTINGS)
def test_a_killed_process_is_taken_up_by_the_same_command(tmp_path, method, capsys):
    def words(out):
        options = [*SETTINGS[method].split(), "--epsilon", "10", "--accountant", "rdp", "--noise-seed", "1"]
        return ["generate", "digits", "--method", method, *options, "--out", str(tmp_path / out)]

    moments, deadline = random.Random(7), time.monotonic() + 300
    work = tmp_path / "set.unfinished"
    command = [sys.executable, "-c", EAGER + "sys.exit(main(sys.argv[1:]))", *words("set")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seen: set[str] = set()
    wanted = moments.randint(2, 8)
    while len(seen) < wanted and process.poll() is None and time.monotonic() < deadline:
        seen |= {path.name for path in work.glob("standing-*")}
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert len(seen) >= 2
    assert not (tmp_path / "set").exists()
    assert main([*words("set"), "--seed", "1"]) == 2
    refused = capsys.readouterr()
    assert "this is another: seed was 0 and is 1" in refused.err
    assert "Going on" not in refused.out + refused.err
    assert main(words("set")) == 0
    assert f"Going on from {work}: nothing is charged again." in capsys.readouterr().err
    assert main(words("whole")) == 0
    assert "Going on" not in capsys.readouterr().err
    assert (tmp_path / "set" / FILES[method]).read_bytes() == (tmp_path / "whole" / FILES[method]).read_bytes()
    ledgers = [(tmp_path / name / "ledger.jsonl").read_text().count("\n") for name in ("set", "whole")]
    assert ledgers == [2, 2]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["set", "whole"]
