"""Cells of several stages go through the same runner, and go on where they were stopped."""

import json

import pytest

from privset import pipeline
from privset.errors import ConfigError
from privset.evaluation import AS_TRAINED, RECIPES, Recipe
from privset.studies import Cell, Outcome, Study, get, run
from privset.studies.courses import figures, summary


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    def quick(*, channels, images_per_class):
        return Recipe(name="quick", epochs=1, full_rate_epochs=1, augment=False)

    monkeypatch.setitem(RECIPES, "quick", quick)


def cell(**changes):
    fields = {
        "name": "several", "method": "dp-merf", "preset": "standard", "data": "digits", "epsilon": 5.0,
        "accountant": "rdp", "per_class": 1, "settings": {"waves": 4, "steps": 2}, "classifier": "mlp",
        "recipes": ("quick",), "sets": 2, "networks": 2, "stages": 2,
    }  # fmt: skip
    return Cell(**(fields | changes))


def test_a_study_of_courses_end_to_end(tmp_path):
    once = cell(name="once", stages=1, sets=1)
    private = cell(
        name="private", method="dp-sgd", preset="small", per_class=None, recipes=(AS_TRAINED,), networks=1, sets=1,
        settings={"network": "mlp", "width": 4, "epochs": 2, "batch_size": None},
    )  # fmt: skip
    study = Study(name="toy", what="a test", cells=(cell(), once, private))
    outcome = run(study, results=tmp_path)
    assert outcome == Outcome(finished=["several.0", "several.1", "once.0", "private.0"])
    found = json.loads((tmp_path / "toy" / "several.json").read_text())
    assert (found["stages"], found["parties"]) == (2, [list("56120"), list("89347")])
    stages = found["recipes"]["quick"]["stages"]
    assert [len(stage["accuracy"]["runs"]) for stage in stages] == [4, 4]  # two courses, two networks each
    assert stages[-1]["accuracy"] == found["accuracy"]  # the cell's accuracy is that on all classes, at the end
    assert len(set(stages[0]["accuracy"]["runs"])) > 1
    assert set(stages[1]["class_accuracy"]) == set("0123456789")
    assert stages[0]["forgetting"] == {"mean": 0.0, "std": 0.0}
    once, private = (json.loads((tmp_path / "toy" / f"{name}.json").read_text()) for name in ("once", "private"))
    assert len(once["recipes"]["quick"]["stages"]) == 1
    assert len(private["recipes"][AS_TRAINED]["stages"]) == 2
    drawn = (tmp_path / "toy" / "toy-digits.svg").read_text()
    assert "dp-merf (several), epsilon 5<" in drawn
    assert "dp-sgd (private)" in drawn
    assert drawn.count("<circle") == 4  # all at once is no curve
    assert (tmp_path / "toy" / "toy-digits.png").exists()
    assert list((tmp_path / "toy" / ".parts").iterdir()) == []
    assert run(study, results=tmp_path).skipped == outcome.finished


@pytest.mark.parametrize("method", ["dp-merf", "psg"])
def test_a_course_that_was_stopped_keeps_its_finished_stages(tmp_path, monkeypatch, method):
    settings = (
        {"runs": 1, "batches_per_step": 1, "inner_epochs": 1, "width": 4}
        if method == "psg"
        else {"waves": 4, "steps": 2}
    )
    preset = "small" if method == "psg" else "standard"
    study = Study(name="toy", what="a test", cells=(cell(method=method, preset=preset, settings=settings, sets=1),))
    made, real = [], pipeline.generate

    def killed(data, **how):
        made.append(how["out"].parent.name)
        if len(made) == 2:
            (how["out"].parent).mkdir(parents=True)
            raise KeyboardInterrupt
        return real(data, **how)

    monkeypatch.setattr(pipeline, "generate", killed)
    with pytest.raises(KeyboardInterrupt):
        run(study, results=tmp_path)
    assert run(study, results=tmp_path).finished == ["several.0"]
    assert made == ["stage-1", "stage-2", "stage-2"]


def test_means_over_courses_by_hand():
    def stage(accuracy, average, forgetting):
        return {
            "seen": ["a", "b"],
            "accuracy": {"runs": [accuracy, accuracy + 2]},
            "average_accuracy": average,
            "forgetting": forgetting,
            "party_accuracy": [average],
            "class_accuracy": {"a": accuracy, "b": average},
        }

    (found,) = summary([[stage(50.0, 60.0, 1.0)], [stage(70.0, 80.0, 3.0)]])
    assert found["accuracy"]["runs"] == [50, 52, 70, 72]
    assert found["accuracy"]["mean"] == 61
    assert found["average_accuracy"]["mean"] == 70
    assert found["forgetting"] == {"mean": 2.0, "std": pytest.approx(2**0.5)}
    assert (found["party_accuracy"], found["class_accuracy"]) == ([70.0], {"a": 60.0, "b": 70.0})


def test_a_colour_a_method_and_dashes_for_the_smaller_budgets():
    def finished(method, epsilon, settings=""):
        stages = [{"accuracy": {"mean": 90.0, "std": 1.0}}, {"accuracy": {"mean": 80.0, "std": 1.0}}]
        return {
            "cell": f"mnist-{method}{settings}", "stages": 2,
            "method": method, "data": "mnist", "epsilon": epsilon, "recipe": "paper",
            "recipes": {"paper": {"stages": stages}},
        }  # fmt: skip

    drawn = figures([finished("psg", 1.0), finished("psg", "inf"), finished("moments", "inf")])["mnist"].svg()
    assert ">psg, epsilon inf<" in drawn
    curves = [line for line in drawn.splitlines() if 'stroke-width="2"' in line]
    dashed, whole = ([line for line in curves if ("dasharray" in line) == wanted] for wanted in (True, False))
    assert (len(dashed), len(whole)) == (2, 4)  # each with its sign in the legend
    colours = {line.split('stroke="')[1][:7] for line in whole}
    assert len(colours) == 2
    assert {line.split('stroke="')[1][:7] for line in dashed} < colours
    both = figures([finished("dp-sgd", 1.0), finished("dp-sgd", 1.0, "-paper")])["mnist"].svg()
    assert ">dp-sgd, epsilon 1<" in both
    assert ">dp-sgd (paper), epsilon 1<" in both


def test_no_curve_no_figure():
    assert figures([]) == {}
    assert figures([{"cell": "mnist-moments", "stages": 1, "method": "moments", "data": "mnist", "epsilon": 1.0}]) == {}


def test_the_study_of_the_papers_figure():
    cells = {one.name: one for one in get("continual").cells}
    assert len(cells) == 20
    assert {one.data for one in cells.values()} == {"mnist", "fashion-mnist"}
    assert all(one.sets == 3 for one in cells.values())
    assert cells["mnist-eps10-psg"].definition()["settings"]["runs"] == 200
    assert cells["fashion-mnist-eps1-dp-merf"].per_class == 6000
    assert cells["mnist-eps1-dp-sgd-paper"].definition()["settings"]["epochs"] == 10
    # What `moments` is compared with, all classes at once, is another study's cell of the same settings.
    whole = next(one for one in get("moments").cells if one.name == "mnist-eps1-ipc10").definition()
    assert cells["mnist-eps1-moments"].definition() == whole | {"stages": 5}
    assert cells["mnist-eps1-psg"].definition() | {"snapshots": 0} == next(
        one for one in get("psg").cells if one.name == "mnist-eps1-ipc10"
    ).definition() | {"stages": 5, "snapshots": 0}
    assert "stages" not in get("moments").cells[0].definition()  # what is on file stays valid


def test_impossible_stages_are_refused():
    with pytest.raises(ConfigError, match="stages are at least one"):
        cell(stages=0)
