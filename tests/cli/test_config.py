"""`--config`: options from a file, and the file that every release has of its own."""

import json
import tomllib

import numpy as np
import pytest

from privset.cli import main
from privset.release import load, verify

TINY = "networks = 3\nwidth = 4\ndepth = 2\nresolution = 2\nwaves = 8\nsteps = 4\nnetworks-per-step = 2\npool = 0\n"
RUN = TINY + 'per-class = 2\nepsilon = 5\naccountant = "rdp"\n'


@pytest.fixture
def run(tmp_path):
    """Writes a file of options, with more lines than a tiny run needs."""

    def write(more="", base=RUN):
        path = tmp_path / "run.toml"
        path.write_text(base + more)
        return path

    return write


@pytest.fixture
def own(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "secret-ward.npz"
    np.savez(path, x=rng.integers(0, 255, (60, 8, 8), dtype=np.uint8), y=np.arange(60) % 3)
    return path


def planned(call, *words):
    code, out, err = call("plan", *words, "--json")
    assert code == 0, err
    return json.loads(out)


def test_options_come_from_the_file_and_the_command_line_wins(call, run):
    plan = planned(call, "digits", "--config", run())
    assert plan["settings"]["networks"] == 3
    assert plan["settings"]["seed"] == 0
    assert plan["budget"] == 5
    assert plan["accountant"] == "rdp"
    plan = planned(call, "digits", "--config", run(), "--networks", 5, "--epsilon=2", "--per_class", 7)
    assert plan["settings"]["networks"] == 5
    assert plan["settings"]["per_class"] == 7
    assert plan["budget"] == 2


def test_a_file_can_have_all_there_is(call, run, tmp_path):
    out = tmp_path / "set"
    path = run(f'data = "digits"\nout = "{out}"\njson = true\nnoise_seed = 3\ntest-fraction = 0.0\ndevice = "cpu"\n')
    code, text, err = call("generate", "--config", path)
    assert code == 0, err
    assert json.loads(text)["release"] == str(out)
    assert planned(call, "--config", path)["data"]["name"] == "digits"  # what a run alone needs is left aside


def test_preset_and_method_come_from_the_file_too(call, run):
    plan = planned(call, "digits", "--config", run(base='method = "psg"\npreset = "small"\nepsilon = inf\n'))
    assert plan["method"] == "psg"
    assert plan["settings"]["batch_size"] == 1024
    assert plan["epsilon"] == "inf"
    plan = planned(call, "digits", "--config", run(base='method = "psg"\nepsilon = inf\n'), "--preset", "small")
    assert plan["settings"]["batch_size"] == 1024


def test_help_shows_the_values_of_the_file(call, run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    code, out, _ = call("generate", "--config", run("steps-x = 1\n".replace("steps-x", "image-rate")), "--help")
    assert code == 0
    assert "(default: 1.0)" in out


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ("epsilom = 1\n", "epsilom is not an option of privset generate --method moments here; did you mean epsilon?"),
        ("colour = 1\n", "colour is not an option"),
        ("clip-norm = 1\n", "clip-norm is not an option of privset generate --method moments"),
        ("config = 'other.toml'\n", "config is not an option"),
        ("[settings]\nseed = 1\n", "[settings] is a table"),
        ("seed = 'one'\n", "seed cannot be 'one': Input should be a valid integer"),
        ("seed = true\n", "seed cannot be True"),
        ("seed = 'none'\n", "seed cannot be 'none'"),
        ("size = 28.5\n", "size cannot be 28.5"),
        ("mean = ['x']\n", "mean cannot be ['x']"),
        ("method = ['moments']\n", "method must be one of"),
        ("data = 5\n", "data cannot be 5"),
        ("image_rate = -1\n", "image-rate"),
        ("per_class = 3\n", "per-class is given twice"),
        ("seed = \n", "not TOML"),
        ("device = 'tpu'\n", "device must be cpu, cuda or cuda:N"),
    ],
)
def test_what_a_file_cannot_say_is_refused_with_its_name(call, run, tmp_path, more, sentence):
    path = run(more)
    code, out, err = call("generate", "digits", "--config", path, "--out", tmp_path / "set")
    assert code == 2
    assert out == ""
    assert sentence in " ".join(err.split())
    assert [found.name for found in tmp_path.iterdir()] == ["run.toml"]


def test_a_file_that_is_not_there_is_named(call, tmp_path):
    code, _, err = call("generate", "digits", "--config", tmp_path / "no.toml", "--out", tmp_path / "set")
    assert code == 2
    assert "no.toml: the configuration cannot be read" in err
    code, _, err = call("distil", "x", "--config", tmp_path, "--out", tmp_path / "set")
    assert code == 2
    assert "cannot be read" in err


def test_what_the_command_line_overrules_need_not_work_here(call, run, tmp_path):
    path = run('device = "cuda:7"\n')
    code, _, err = call("generate", "digits", "--config", path, "--device", "cpu", "--out", tmp_path / "set")
    assert code == 0, err


def test_a_release_has_the_configuration_that_repeats_it(call, run, tmp_path):
    words = ["--seed", 4, "--mean", 0.4, "--std", 0.3]
    assert call("generate", "digits", "--config", run(), *words, "--out", tmp_path / "first")[0] == 0
    code, _, err = call("generate", "--config", tmp_path / "first" / "config.toml", "--out", tmp_path / "second")
    assert code == 0, err
    first, second = load(tmp_path / "first"), load(tmp_path / "second")
    assert first.certificate.configuration == second.certificate.configuration
    assert first.certificate.configuration["seed"] == 4
    assert first.certificate.events == second.certificate.events
    assert first.certificate.facts == second.certificate.facts
    assert first.set.digest() != second.set.digest()  # noise is never repeated
    assert (tmp_path / "first" / "config.toml").read_bytes() == (tmp_path / "second" / "config.toml").read_bytes()
    assert verify(tmp_path / "first").ok


def test_settings_that_are_none_stay_so(call, tmp_path, run):
    base = 'method = "psg"\nruns = 1\nouter-steps = 1\nbatches-per-step = 2\nbatch-size = 64\nnetwork = "mlp"\n'
    path = run('width = "none"\ninner-epochs = 1\nper-class = 1\nepsilon = 3\naccountant = "rdp"\n', base=base)
    assert call("generate", "digits", "--config", path, "--out", tmp_path / "set")[0] == 0
    stored = tomllib.loads((tmp_path / "set" / "config.toml").read_text())
    assert stored["width"] == "none"
    plan = planned(call, "--config", tmp_path / "set" / "config.toml", "--preset", "small")
    assert plan["settings"]["width"] is None  # the preset fills in only what the file does not say


def test_where_private_data_was_is_not_published(call, own, run, tmp_path):
    words = [own, "--config", run("noise-seed = 1234567\n"), "--test-fraction", "0.2", "--out", tmp_path / "set"]
    assert call("generate", *words)[0] == 0
    text = (tmp_path / "set" / "config.toml").read_text()
    stored = tomllib.loads(text)
    assert "data" not in stored
    assert str(tmp_path) not in text
    assert "secret-ward" not in text
    assert "1234567" not in text  # whoever knew it could take the noise away
    assert stored["test-fraction"] == 0.2
    assert "It needs DATA on the command line" in text
    code, _, err = call("generate", "--config", tmp_path / "set" / "config.toml", "--out", tmp_path / "again")
    assert code == 2
    assert "data" in err.lower()
    code, _, err = call("generate", own, "--config", tmp_path / "set" / "config.toml", "--out", tmp_path / "again")
    assert code == 0, err
    assert load(tmp_path / "again").certificate.facts == load(tmp_path / "set").certificate.facts


def test_measuring_and_distilling_are_repeated_likewise(call, run, tmp_path):
    assert call("measure", "digits", "--config", run(), "--out", tmp_path / "stats")[0] == 0
    stored = tmp_path / "stats" / "config.toml"
    assert "privset measure --config" in stored.read_text()
    assert call("measure", "--config", stored, "--out", tmp_path / "stats2")[0] == 0
    code, _, err = call("distil", tmp_path / "stats", "--per-class", 3, "--seed", 9, "--out", tmp_path / "set")
    assert code == 0, err
    stored = tmp_path / "set" / "config.toml"
    assert "epsilon" not in tomllib.loads(stored.read_text())
    code, _, err = call("distil", tmp_path / "stats", "--config", stored, "--out", tmp_path / "set2")
    assert code == 0, err
    assert load(tmp_path / "set").set.digest() == load(tmp_path / "set2").set.digest()  # there is no noise in it
    for name in ("stats", "set"):
        assert verify(tmp_path / name).ok
    own = tmp_path / "own.toml"
    own.write_text(f'statistics = "{tmp_path / "stats"}"\nout = "{tmp_path / "set3"}"\nper-class = 1\n')
    assert main(["distil", "--config", str(own)]) == 0
    assert len(load(tmp_path / "set3").set) == 10
    own.write_text("epsilon = 1\n")
    code, _, err = call("distil", tmp_path / "stats", "--config", own, "--out", tmp_path / "set4")
    assert code == 2
    assert "epsilon is not an option of privset distil" in err
