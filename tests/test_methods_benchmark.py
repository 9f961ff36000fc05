"""The benchmark that times the beginning of a method's run, with small presets on small images."""

import dataclasses
import json

import pytest


@pytest.fixture
def methods(benchmark_named):
    return benchmark_named("methods")


def run(methods, folder, name, *more):
    facts = dataclasses.replace(methods.FACTS, height=8, width=8, size=1500)
    methods.main([f"{name}:small:10", "--results", str(folder), *more], facts)
    return json.loads((folder / "speed" / f"method-{name}-small-eps10-ipc6000-cpu.json").read_bytes())


def test_a_phase_that_was_cut_is_counted_in_full(methods, tmp_path):
    found = run(methods, tmp_path, "gs-wgan", "--seconds", "0.2")
    warm_up, training = found["phases"]["warming up critics"], found["phases"]["training a generator"]
    assert (warm_up["steps"], warm_up["timed"]) == (20, 1)
    assert training["steps"] == 100
    assert training["timed"] < 97
    seconds = sum(phase["steps"] * phase["seconds a step"] for phase in found["phases"].values())
    assert 0 < found["before"] < found["seconds"]
    assert found["value"] == pytest.approx((found["before"] + seconds) / 60)
    assert {"what", "command", "commit", "device", "seconds", "versions"} <= found.keys()


def test_what_is_on_file_is_not_measured_again(methods, tmp_path, capsys):
    first = run(methods, tmp_path, "dp-cgan", "--seconds", "0.1")
    assert run(methods, tmp_path, "dp-cgan", "--seconds", "0.1") == first
    assert "on file" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("moments:light:10", "moments is not one long loop"),
        ("cgan:small:10", "method must be one of"),
        ("dp-cgan:tiny:10", "dp-cgan has the presets"),
        ("dp-cgan:small:ten", "'dp-cgan:small:ten' is not METHOD:PRESET:EPSILON[:PER_CLASS]"),
        ("dp-cgan:small:10:20:30", "is not METHOD:PRESET:EPSILON[:PER_CLASS]"),
        ("dp-cgan:small:0.0001", "cannot be paid for"),
        ("dp-cgan:small:10 --device gpu", "device must be cpu, cuda or cuda:N"),
    ],
)
def test_what_cannot_be_timed_is_refused_in_a_sentence(methods, tmp_path, capsys, words, sentence):
    with pytest.raises(SystemExit) as ended:
        methods.main([*words.split(), "--results", str(tmp_path)])
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_set_of_another_size_is_a_run_of_its_own(methods, tmp_path):
    found = run(methods, tmp_path, "psg", "--seconds", "0.1")
    facts = dataclasses.replace(methods.FACTS, height=8, width=8, size=1500)
    methods.main(["psg:small:10:2", "--results", str(tmp_path), "--seconds", "0.1"], facts)
    other = json.loads((tmp_path / "speed" / "method-psg-small-eps10-ipc2-cpu.json").read_bytes())
    assert (found["per_class"], other["per_class"]) == (6000, 2)
