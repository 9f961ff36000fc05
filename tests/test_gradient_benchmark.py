"""The benchmark of clipped gradients, with a stand-in for what it measures."""

import json

import pytest


@pytest.fixture
def gradient(monkeypatch, benchmark_named, tmp_path):
    module = benchmark_named("gradient")
    measured = {"what": "a sum", "value": 1.0, "ratio_to": {"vmap": 0.5}, "not_measured": {}}
    monkeypatch.setattr(module, "measure", lambda **_: measured)
    monkeypatch.chdir(tmp_path)
    return module


def test_all_points_of_the_curves_are_put_on_file(gradient, tmp_path):
    gradient.main(["--curves"])
    assert len(list((tmp_path / "results" / "speed").iterdir())) == len(gradient.CURVE_POINTS) == 10


def test_what_is_no_point_of_the_curves_is_put_on_file_elsewhere_only(gradient, tmp_path, capsys):
    gradient.main(["--batch", "7"])
    assert "not put on file" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
    gradient.main(["--batch", "7", "--results", "other"])
    assert "not put on file" not in capsys.readouterr().out
    found = tmp_path / "other" / "speed" / "gradient-cpu-b7-w128-s28.json"
    assert json.loads(found.read_bytes())["what"] == "a sum"


def test_a_folder_that_is_none_is_refused_where_it_is_the_usual_one_too(gradient, tmp_path, capsys):
    (tmp_path / "results").write_bytes(b"")
    with pytest.raises(SystemExit):
        gradient.main([])
    assert "results is not a folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [["--batch", "0"], ["--rounds", "x"], ["--side", "7"], ["--device", "gpu"], ["--results", f"{__file__}/results"]],
)
def test_what_cannot_be_measured_is_refused_in_a_sentence(gradient, tmp_path, capsys, words):
    with pytest.raises(SystemExit) as ended:
        gradient.main(words)
    assert ended.value.code == 2
    assert f"{words[0]}: " in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
