"""The scripts in the shells they are for."""

import json
import shutil
import subprocess

import pytest

from privset.cli.main import COMMANDS
from privset.methods import METHODS


@pytest.fixture(scope="module")
def scripts():
    """Shell -> script; made once, because every command's help is read for it."""
    import contextlib
    import io

    from privset.cli import main

    found = {}
    for shell in ("bash", "zsh", "fish"):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            assert main(["completion", shell]) == 0
        found[shell] = text.getvalue()
    return found


def complete_in_bash(script, folder, *words):
    """What bash would offer for the last of these words."""
    quoted = " ".join(f"'{word}'" for word in words)
    asking = (
        f"{script}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _privset; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    done = subprocess.run(["bash", "-c", asking], capture_output=True, text=True, cwd=folder, check=True)
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_commands_options_values_and_names(scripts, tmp_path):
    script = scripts["bash"]
    assert set(complete_in_bash(script, tmp_path, "privset", "")) == {*COMMANDS, "--help", "--version"}
    assert complete_in_bash(script, tmp_path, "privset", "gen") == ["generate"]
    options = complete_in_bash(script, tmp_path, "privset", "generate", "mnist", "--")
    assert {"--epsilon", "--out", "--config", "--tensorboard", "--networks", "--clip-norm", "--code"} <= set(options)
    assert complete_in_bash(script, tmp_path, "privset", "verify", "--s") == ["--source"]
    assert set(complete_in_bash(script, tmp_path, "privset", "plan", "x", "--method", "")) == set(METHODS)
    assert complete_in_bash(script, tmp_path, "privset", "export", "x", "--to", "p") == ["png", "parquet"]
    assert complete_in_bash(script, tmp_path, "privset", "plan", "fash") == ["fashion-mnist"]
    assert set(complete_in_bash(script, tmp_path, "privset", "study", "")) == {"list", "run", "show"}
    assert complete_in_bash(script, tmp_path, "privset", "study", "run", "--sh") == ["--shard"]
    assert complete_in_bash(script, tmp_path, "privset", "completion", "z") == ["zsh"]


def test_bash_leaves_files_to_the_shell(scripts, tmp_path):
    (tmp_path / "my scans").mkdir()
    assert complete_in_bash(scripts["bash"], tmp_path, "privset", "generate", "x", "--out", "my") == []
    assert "complete -o default -F _privset privset" in scripts["bash"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh here")
def test_zsh_takes_the_script_and_offers_commands_and_options(scripts, tmp_path):
    asking = """
compdef() { true }
_files() { print FILES }
compadd() { shift; print -l -- "$@" }
%s
words=(%s); CURRENT=%d; _privset
"""

    def offered(*typed):
        text = asking % (scripts["zsh"], " ".join(f"'{word}'" for word in typed), len(typed))
        done = subprocess.run(["zsh", "-f", "-c", text], capture_output=True, text=True, cwd=tmp_path, check=True)
        assert done.stderr == ""
        return done.stdout.split()

    assert set(offered("privset", "")) == {*COMMANDS, "--help", "--version"}
    assert "--epsilon" in offered("privset", "generate", "mnist", "--")
    assert set(offered("privset", "plan", "x", "--method", "")) == set(METHODS)
    assert {"mnist", "FILES"} <= set(offered("privset", "plan", ""))


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish here")
def test_fish_completes_commands_and_options(scripts, tmp_path):
    def offered(line):
        asking = f"{scripts['fish']}\ncomplete -C {json.dumps(line)}"
        home = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(
            ["fish", "-c", asking], capture_output=True, text=True, cwd=tmp_path, env=home, check=True
        )
        return [row.split("\t")[0] for row in done.stdout.splitlines()]

    assert set(COMMANDS) <= set(offered("privset "))
    assert "--epsilon" in offered("privset generate mnist --")
    assert set(offered("privset plan x --method ")) == set(METHODS)


def test_zsh_and_fish_name_every_command(scripts):
    for name in COMMANDS:
        assert f"        {name}) options=" in scripts["zsh"]
        assert f"__fish_seen_subcommand_from {name}'" in scripts["fish"]


def test_another_shell_is_refused(call):
    code, out, err = call("completion", "tcsh")
    assert code == 2
    assert out == ""
    assert "tcsh" in err
