"""Cells that are measured along the run: each set's points on file, their means, and a curve for each data set."""

import json
from typing import Any

import pytest

from privset.errors import ConfigError
from privset.evaluation import RECIPES, Recipe
from privset.studies import Cell, Outcome, Study, get, run
from privset.studies.along import figures, summary


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setitem(RECIPES, "quick", lambda **_: Recipe(name="quick", epochs=1, full_rate_epochs=1, augment=False))


def cell(**changes):
    fields: dict[str, Any] = {
        "name": "some", "method": "psg", "preset": "small", "data": "digits", "epsilon": 10.0, "accountant": "rdp",
        "per_class": 1, "settings": {"runs": 3, "batches_per_step": 2, "width": 4}, "classifier": "mlp",
        "recipes": ("quick",), "sets": 2, "networks": 2, "snapshots": 3,
    }  # fmt: skip
    return Cell(**(fields | changes))


def test_a_study_with_curves_end_to_end_also_if_it_is_stopped(tmp_path, monkeypatch):
    study = Study(name="toy", what="a test", cells=(cell(), cell(name="plain", snapshots=0, sets=1)))
    with monkeypatch.context() as patch:
        patch.setattr("privset.studies.along.evaluate_along", lambda *_, **__: 1 / 0)
        assert "some.0" in run(study, cells=["some"], results=tmp_path).failed
    assert (
        len(list((tmp_path / "toy" / ".parts").glob("some.0.*/release/snapshots.safetensors"))) == 1
    )  # not made again
    assert run(study, results=tmp_path) == Outcome(finished=["some.0", "some.1", "plain.0"])
    found, plain = (json.loads((tmp_path / "toy" / f"{name}.json").read_text()) for name in ("some", "plain"))
    assert [point["answers"] for point in found["along"]] == [2, 4, 6]
    epsilons = [point["epsilon"] for point in found["along"]]
    assert epsilons == sorted(epsilons)
    assert 9.9 < epsilons[-1] <= 10
    assert {point["recipe"] for point in found["along"]} == {"quick"}
    assert [len(point["accuracy"]["runs"]) for point in found["along"]] == [2, 2, 2]  # one network of each set
    first = found["along"][-1]["accuracy"]["runs"][0]
    assert first == found["accuracy"]["runs"][0]  # the last point is the set, and the network the first of the cell's
    assert "along" not in plain
    assert "snapshots" not in plain
    drawn = (tmp_path / "toy" / "toy-digits-along.svg").read_text()
    assert "psg, 1 a class, quick" in drawn
    assert drawn.count("<circle") == 3
    assert (tmp_path / "toy" / "toy-digits-along.png").exists()
    assert not (tmp_path / "toy" / "toy-digits.svg").exists()
    assert list((tmp_path / "toy" / ".parts").iterdir()) == []


def test_means_over_sets_by_hand():
    def points(*accuracies):
        return [
            {"answers": 10 * n, "epsilon": 1.0 * n, "accuracy": {"runs": [accuracy]}}
            for n, accuracy in enumerate(accuracies, 1)
        ]

    found = summary(cell(), [points(50.0, 70.0), points(60.0, 70.0)])
    assert [point["answers"] for point in found] == [10, 20]
    assert found[0]["accuracy"] == {"mean": 55.0, "std": pytest.approx(50**0.5), "runs": [50.0, 60.0]}
    assert found[1]["accuracy"]["std"] == 0
    assert summary(cell(), [points(50.0)])[0]["accuracy"]["std"] == 0


def test_no_curve_no_figure():
    assert figures([{"data": "mnist", "method": "psg"}]) == {}


def test_the_curves_of_the_papers_figure():
    cells = {one.name: one for one in get("psg").cells}
    assert {name for name, one in cells.items() if one.snapshots} == {
        f"{data}-eps10-ipc{size}" for data in ("mnist", "fashion-mnist") for size in (10, 20)
    }
    assert cells["mnist-eps10-ipc10"].recipes[0] == "paper"
    assert "snapshots" not in cells["mnist-eps1-ipc10"].definition()  # what is on file stays valid
    assert cell(snapshots=0).set_key(0) != cell().set_key(0)


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "dp-merf", "preset": "standard", "settings": {}},
        {"epsilon": float("inf")},
        {"stages": 2},
        {"method": "real", "preset": "", "settings": {}, "epsilon": float("inf")},
    ],
)
def test_what_has_no_curve_is_refused(changes):
    with pytest.raises(ConfigError, match="accuracy against epsilon needs"):
        cell(**changes)
