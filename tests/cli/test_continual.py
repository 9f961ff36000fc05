"""`privset continual`, `privset continual stage` and `privset merge`, as typed."""

import json
import shutil

import numpy as np
import pytest

from privset import files
from privset.continual import class_order
from privset.data import load

TINY = ("--method", "dp-merf", "--steps", 3, "--per-class", 2, "--waves", 8, "--epsilon", 5, "--accountant", "rdp")
EXAM = ("--classifier", "mlp", "--recipe", "quick", "--trainings", 1)


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    """An exam of a moment: what is learned does not matter here."""
    from privset.evaluation import RECIPES, Recipe

    def quick(*, channels, images_per_class):
        return Recipe(name="quick", epochs=1, full_rate_epochs=1, augment=False)

    monkeypatch.setitem(RECIPES, "quick", quick)


def warnings_in(err):
    """Lines that say more than what begins."""
    return [line for line in err.splitlines() if not line.endswith(" ...")]


def test_a_course_in_words_and_as_json(call, tmp_path):
    words = ("continual", "digits", *TINY, *EXAM, "--stages", 2, "--out", tmp_path / "course")
    code, out, _ = call(*words)
    assert code == 0
    assert "5, 6, 1, 2, 0" in out  # the published order
    assert "said to be disjoint" in out
    code, out, _ = call(*words, "--json")  # finished: only looked at again
    found = json.loads(out)
    assert code == 0
    assert found["parties"] == [list("56120"), list("89347")]
    assert [stage["stage"] for stage in found["recipes"]["quick"]] == [1, 2]
    assert found["guarantee"]["private"]
    assert json.loads((tmp_path / "course" / "guarantee.json").read_text()) == found["guarantee"]


def test_stages_one_by_one_and_their_sets_as_one(call, tmp_path):
    first, second, merged = (tmp_path / name for name in ("first", "second", "merged"))
    code, out, _ = call("continual", "stage", "digits", "--classes", 0, 1, *TINY, "--out", first)
    assert code == 0
    assert "hand it on" in out
    words = ("--classes", 7, 3, *TINY, *EXAM, "--received", first, "--test", "digits", "--out", second)
    code, _, err = call("continual", "stage", "digits", *words)
    assert code == 2
    assert "say so with --disjoint" in err
    assert not second.exists()
    words = (*words, "--disjoint")
    code, out, _ = call("continual", "stage", "digits", *words, "--json")
    found = json.loads(out)
    assert (code, found["stage"]) == (0, 2)
    assert found["recipes"]["quick"]["classes"] == ["0", "1", "7", "3"]
    assert [party["classes"] for party in found["guarantee"]["parties"]] == [["0", "1"], ["7", "3"]]
    code, out, err = call("merge", first / "release", second / "release", "--out", merged)
    assert code == 0
    assert "say so with --disjoint" in err
    # Stages, which are handed on as a whole, hold a release each.
    code, out, err = call("merge", first, second, "--disjoint", "--out", tmp_path / "d", "--json")
    assert (code, warnings_in(err)) == (0, [])
    assert json.loads(out)["images"] == 8
    assert json.loads(out)["epsilon"] <= 5
    code, out, _ = call("verify", tmp_path / "d")
    assert code == 0
    assert "part 2" in out
    code, out, _ = call("export", tmp_path / "d", "--to", "npz", "--out", tmp_path / "exported")
    assert code == 0
    assert (tmp_path / "exported" / "parts" / "2" / "certificate.json").is_file()
    code, out, _ = call("report", tmp_path / "d", "--out", tmp_path / "report.html")
    assert code == 0


@pytest.mark.parametrize("method", ["dp-merf", "dp-sgd"])
def test_the_configuration_of_a_stage_names_the_command_that_makes_another_like_it(call, tmp_path, method):
    known = ("--known", 0, 1, 2, 3) if method == "dp-sgd" else ()
    words = ("--classes", 0, 1, *known, "--out")
    chosen = TINY if method == "dp-merf" else ("--method", method, "--preset", "small", "--epochs", 1, "--epsilon", 50)
    assert call("continual", "stage", "digits", *chosen, *words, tmp_path / "first")[0] == 0
    config = tmp_path / "first" / "release" / "config.toml"
    text = config.read_text()
    assert "`privset continual stage --config config.toml --out NEW` makes another one like it" in text
    assert "--classes, --received and --known, if it had any, are not here" in text
    assert call("continual", "stage", "digits", "--config", config, *words, tmp_path / "second")[0] == 0
    assert (tmp_path / "second" / "release" / "config.toml").read_text() == text
    assert call("verify", tmp_path / "second")[0] == 0


def test_the_order_of_classes_may_be_drawn(call, tmp_path):
    words = ("continual", "digits", *TINY, *EXAM, "--stages", 2, "--order-seed", 3, "--json", "--out")
    found = json.loads(call(*words, tmp_path / "course")[1])["parties"]
    order = class_order(load("digits"), seed=3)
    assert found == [list(order[:5]), list(order[5:])]
    assert order != class_order(load("digits"))
    code, _, err = call(*words, tmp_path / "other", "--class-order", *order)
    assert code == 2
    assert "class-order or order-seed, not both" in err


def test_a_stage_beside_those_it_received_can_be_repeated(call, tmp_path):
    course = tmp_path / "course"
    call("continual", "stage", "digits", "--classes", 0, 1, *TINY, "--out", course / "stage-1")
    words = ("--classes", 2, 3, *TINY, "--received", course, "--disjoint", "--out", course / "stage-2", "--json")
    first, second = (call("continual", "stage", "digits", *words) for _ in range(2))
    assert (first[0], second[0]) == (0, 0)
    assert json.loads(second[1]) == json.loads(first[1])


def test_sets_are_not_joined_if_the_note_of_one_says_something_else_of_another(call, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    call("continual", "stage", "digits", "--classes", 0, 1, *TINY, "--out", first)
    words = ("--received", first, "--disjoint", "--out", second)
    call("continual", "stage", "digits", "--classes", 2, 3, *TINY, *words)
    note = second / "stage.json"
    said = json.loads(note.read_text())
    said["received"][0]["epsilon"] = 0.01
    note.write_bytes(files.as_json(said))
    code, _, err = call("merge", first, second, "--disjoint", "--out", tmp_path / "merged")
    assert code == 2
    assert "(epsilon), so one of them was changed" in " ".join(err.split())
    assert not (tmp_path / "merged").exists()


def test_a_larger_delta_has_to_be_accepted_by_its_name(call, tmp_path):
    call("continual", "stage", "digits", "--classes", 0, 1, *TINY, "--delta", 1e-4, "--out", tmp_path / "first")
    words = ("--classes", 2, 3, *TINY, "--received", tmp_path / "first", "--disjoint", "--out", tmp_path / "second")
    code, _, err = call("continual", "stage", "digits", *words)
    assert code == 2
    assert "--accept-delta" in err
    assert "--accept-epsilon" not in err
    assert call("continual", "stage", "digits", *words, "--accept-delta", 1e-4)[0] == 0


def test_a_release_that_was_tampered_with_or_cost_too_much_is_refused(call, tmp_path):
    first = tmp_path / "first"
    call("continual", "stage", "digits", "--classes", 0, 1, *TINY, "--out", first)
    start = ("continual", "stage", "digits", "--classes", 2, 3, "--disjoint", "--received", first, "--out")
    start = (*start, tmp_path / "second")
    code, _, err = call(*start, *TINY, "--epsilon", 2)
    assert code == 2
    assert "--accept-epsilon" in err
    assert call(*start, *TINY, "--epsilon", 2, "--accept-epsilon", 5)[0] == 0
    (first / "release" / "set.safetensors").write_bytes(b"")
    code, _, err = call(*start[:-1], tmp_path / "third", *TINY)
    assert code == 2
    assert "nothing is learned from it" in err
    assert not (tmp_path / "third").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--stages", 10), "at most 5 stage"),
        (("--stages", 2, "--class-order", 1, 2), "name each class of digits once"),
        (("--stages", 2, "--recipe", "quik"), "Did you mean quick?"),
        (("--stages", 2, "--epsilon", 0.001), "cannot be paid for"),
    ],
)
def test_mistakes_cost_nothing(call, tmp_path, words, said):
    code, _, err = call("continual", "digits", *TINY, *EXAM, "--out", tmp_path / "out", *words)
    assert code == 2
    assert said in err
    assert not (tmp_path / "out").exists()


def test_what_says_how_to_train_is_refused_where_a_classifier_travels(call, tmp_path):
    sgd = ("--method", "dp-sgd", "--epsilon", 5, "--accountant", "rdp", "--out", tmp_path / "out")
    for words in (("digits",), ("stage", "digits", "--classes", 0, 1)):
        code, _, err = call("continual", *words, *sgd, "--classifier", "convnet", "--trainings=3")
        assert code == 2
        assert "tested as it is; leave out --classifier, --trainings" in err
        assert not list(tmp_path.iterdir())


def test_what_says_how_to_test_is_refused_where_nothing_is_tested(call, tmp_path):
    words = ("--classes", 0, 1, *TINY, "--recipe", "quick", "--trainings=1", "--out", tmp_path / "out")
    code, _, err = call("continual", "stage", "digits", *words)
    assert code == 2
    assert "nothing is tested here, so --recipe, --trainings would do nothing; say on what (--test DATA)" in err
    assert not list(tmp_path.iterdir())


def test_a_stage_is_not_written_into_a_release_nor_an_export_into_a_stage(call, tmp_path):
    first = tmp_path / "first"
    assert call("continual", "stage", "digits", "--classes", 0, 1, *TINY, "--out", first)[0] == 0
    words = ("--classes", 2, 3, *TINY, "--received", first, "--disjoint", "--out", first / "release" / "second")
    code, _, err = call("continual", "stage", "digits", *words)
    assert code == 2
    assert "which is whole as it is; choose a place outside of it" in err
    for folder in (first, first / "release"):
        assert call("export", folder, "--to", "npz")[0] == 0
        assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "first-npz"]
        shutil.rmtree(tmp_path / "first-npz")
    assert call("verify", first)[0] == 0


def test_a_party_with_a_file_of_its_own_and_test_images_of_another_form(call, tmp_path):
    """A stage as typed, from its records alone; what could not be tested in the end is refused before it is paid."""

    def write(name, side, labels):
        pixels = np.random.default_rng(0).integers(0, 256, (len(labels), side, side), dtype=np.uint8)
        np.savez(tmp_path / name, x=pixels, y=labels, x_test=pixels, y_test=labels, classes=np.array(["up", "down"]))
        return tmp_path / name

    own = write("own.npz", 8, np.arange(60) % 2)
    large = write("large.npz", 12, np.arange(60) % 2)
    words = ("continual", "stage", own, *TINY, *EXAM, "--mean", 0.5, "--std", 0.5, "--out", tmp_path / "stage")
    code, _, err = call(*words, "--test", large)
    assert code == 2
    assert "the release is of images of another form than large.npz: size 8x8 and not 12x12" in err
    assert not (tmp_path / "stage").exists()
    assert call(*words, "--test", own)[0] == 0


def test_a_stage_stands_for_the_release_it_holds_and_verify_reads_its_note(call, tmp_path, monkeypatch):
    first = tmp_path / "first"
    assert call("continual", "stage", "digits", "--classes", 0, 1, *TINY, "--out", first)[0] == 0
    code, out, _ = call("verify", first)
    assert code == 0
    assert "its note says of this release" in out
    assert call("export", first, "--to", "npz", "--out", tmp_path / "exported")[0] == 0
    assert call("report", first, "--out", tmp_path / "report.html")[0] == 0
    code, _, err = call("evaluate", first, "--data", "digits")
    assert code == 2
    assert "classes" in err  # it is read; digits has some that it has not
    note = json.loads((first / "stage.json").read_text())
    (first / "stage.json").write_text(json.dumps(note | {"epsilon": 0.1}))
    monkeypatch.chdir(first / "release")
    for folder in (first, first / "release", "."):
        code, out, _ = call("verify", folder)
        assert code == 1
        assert "FAILED" in out
    shutil.copytree(first / "release", first / "elsewhere")  # which that note is not about
    assert call("verify", first / "elsewhere")[0] == 0
    shutil.rmtree(first / "elsewhere")
    call("continual", "stage", "digits", "--classes", 2, 3, *TINY, "--out", tmp_path / "second")
    code, _, err = call("merge", first, tmp_path / "second", "--out", tmp_path / "all")
    assert code == 2
    assert "stage.json says something else than the certificate" in err
    assert not (tmp_path / "all").exists()


def test_a_stage_with_work_or_anything_else_in_it_is_neither_verified_nor_merged(call, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for classes, folder in (((0, 1), first), ((2, 3), second)):
        assert call("continual", "stage", "digits", "--classes", *classes, *TINY, "--out", folder)[0] == 0
    (first / "stage.json").unlink()  # as after a kill
    for left in ("release.unfinished", "patients"):
        (first / left).mkdir()
        code, out, _ = call("verify", first, "--json")
        assert code == 1
        assert [check["name"] for check in json.loads(out)["checks"] if not check["ok"]] == ["stage"]
        code, _, err = call("merge", first, second, "--out", tmp_path / "all")
        assert code == 2
        assert f"first has {left}" in " ".join(err.split())
        assert call("verify", first / "release")[0] == (1 if left == "release.unfinished" else 0)
        (first / left).rmdir()
    assert call("verify", first)[0] == 0


def test_a_folder_of_stages_can_be_merged_and_the_same_data_twice_is_noticed(call, tmp_path):
    for name in ("one", "two"):
        call("continual", "stage", "digits", "--classes", 0, 1, *TINY, "--out", tmp_path / "parts" / name)
    code, _, err = call("merge", tmp_path / "parts", "--disjoint", "--out", tmp_path / "all")
    assert code == 0
    assert "both of 288 records called 'digits'" in err
    (tmp_path / "empty").mkdir()
    code, _, err = call("merge", tmp_path / "parts", tmp_path / "empty", "--out", tmp_path / "more")
    assert code == 2
    assert "empty: there is no release in it" in err


def test_a_classifier_that_nobody_could_go_on_from_is_not_paid_for(call, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (60, 8, 8), dtype=np.uint8)
    for name, classes in (("up.npz", ["up", "down"]), ("left.npz", ["left", "right"])):
        np.savez(tmp_path / name, x=pixels, y=np.arange(60) % 2, classes=np.array(classes))
    words = ("--method", "dp-sgd", "--preset", "small", "--epochs", 1, "--epsilon", 50, "--out")
    code, _, err = call("continual", "stage", tmp_path / "up.npz", *words, tmp_path / "1")
    assert code == 2
    assert "a classifier for up, down alone has no outputs for the classes of other parties" in err
    assert "--known" in err
    assert not (tmp_path / "1").exists()
    known = ("--known", "up", "down", "left", "right")
    assert call("continual", "stage", tmp_path / "up.npz", *words, tmp_path / "1", *known)[0] == 0
    # The next one takes the classes from what it received.
    received = ("--received", tmp_path / "1", "--disjoint")
    code, out, err = call("continual", "stage", tmp_path / "left.npz", *words, tmp_path / "2", *received)
    assert (code, warnings_in(err)) == (0, [])
    assert "Received" in out
    wrong = ("--known", "left", "right", "up", "down")
    code, _, err = call("continual", "stage", tmp_path / "left.npz", *words, tmp_path / "3", *received, *wrong)
    assert code == 2
    assert "it has outputs for up, down, left, right, not for left, right, up, down (--known)" in err


def test_test_data_without_a_split_is_tested_on_whole_and_what_it_shares_is_said(call, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (60, 8, 8), dtype=np.uint8)
    fields = {"y": np.arange(60) % 2, "classes": np.array(["up", "down"])}
    np.savez(tmp_path / "own.npz", x=pixels, **fields)
    np.savez(tmp_path / "other.npz", x=255 - pixels, **fields)
    words = ("continual", "stage", tmp_path / "own.npz", *TINY, *EXAM, "--json", "--out")
    code, out, err = call(*words, tmp_path / "1", "--test", tmp_path / "other.npz")
    assert (code, warnings_in(err)) == (0, [])
    assert sum(map(sum, json.loads(out)["recipes"]["quick"]["confusion"])) == 60
    np.savez(tmp_path / "copy.npz", x=pixels, **fields)
    code, out, err = call(*words, tmp_path / "2", "--test", tmp_path / "copy.npz")
    assert code == 0
    assert "60 of the 60 test images are among this party's own records" in err
    # Of the party's own data, what it holds out.
    code, _, err = call(*words, tmp_path / "3", "--test", tmp_path / "own.npz")
    assert code == 2
    assert "--test-fraction" in err
    code, out, err = call(*words, tmp_path / "3", "--test", tmp_path / "own.npz", "--test-fraction", 0.2)
    assert (code, warnings_in(err)) == (0, [])
    assert sum(map(sum, json.loads(out)["recipes"]["quick"]["confusion"])) == 12
