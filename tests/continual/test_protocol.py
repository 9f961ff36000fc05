"""The whole course: what it writes, what it says, and that it goes on where it was stopped."""

import dataclasses
import json
import shutil

import pytest
from tests.continual.conftest import BUDGET, CLASSES, EXAM, method_named, stage

from privset import continual, pipeline
from privset.errors import ConfigError, DataError, PrivsetError, ReleaseError
from privset.evaluation import AS_TRAINED, evaluate_release
from privset.privacy import PrivacyBudget
from privset.release import merge, verify
from privset.release.statement import rounded_up
from privset.report.sources import add_evaluations, read_subjects

PARTIES = (CLASSES[:2], CLASSES[2:4], CLASSES[4:])


def run(dataset, out, method="dp-merf", parties=PARTIES, budget=BUDGET, seed: int | None = 3, exam=EXAM, **settings):
    chosen = method_named(method, **settings)
    stages = continual.prepare(dataset, parties, method=chosen, budget=budget, out=out, exam=exam, noise_seed=seed)
    return continual.run(dataset, stages, exam=exam)


def test_a_course_of_sets(tmp_path, dataset):
    course = run(dataset, tmp_path / "out")
    (scores,) = course.scores.values()
    assert [one.seen for one in scores] == [CLASSES[:2], CLASSES[:4], CLASSES]
    assert [len(one.accuracy) for one in scores] == [2, 2, 2]  # networks
    assert [len(one.parties) for one in scores] == [1, 2, 3]
    found = json.loads((tmp_path / "out" / "continual.json").read_text())
    assert found["parties"] == [list(party) for party in PARTIES]
    assert found["recipe"] == "tiny"
    assert [stage["accuracy"]["mean"] for stage in found["recipes"]["tiny"]] == [one.mean for one in scores]
    assert found["guarantee"] == json.loads((tmp_path / "out" / "guarantee.json").read_text())
    assert (tmp_path / "out" / "accuracy.png").read_bytes().startswith(b"\x89PNG")
    assert "dp-merf, tiny" in (tmp_path / "out" / "accuracy.svg").read_text()
    evaluations = [json.loads((tmp_path / "out" / "evaluations" / f"stage-{n}.json").read_text()) for n in (1, 2, 3)]
    for number in (1, 2, 3):  # what is handed on says nothing of real test images
        folder = tmp_path / "out" / f"stage-{number}"
        assert sorted(path.name for path in folder.iterdir()) == ["release", "stage.json"]
    assert "have no guarantee" in found["caution"]
    images = [one["recipes"]["tiny"]["images"] for one in evaluations]
    assert images == [4, 8, 12]  # all sets so far
    counts = [sum(map(sum, one["recipes"]["tiny"]["confusion"])) for one in evaluations]
    assert counts == [2 * 20, 2 * 40, 2 * 60]  # test images of all classes seen, for two networks


def test_labels_of_later_parties_are_told_apart_by_name(tmp_path, dataset, monkeypatch):
    """Whatever the order of the parties, no label is mixed up on the way to the classifier."""
    given = []
    monkeypatch.setattr(
        "privset.continual.exam.train_and_test",
        lambda images, labels, facts, test, **_: given.append((labels, facts, test)),
    )
    stages = continual.prepare(dataset, PARTIES, method=method_named("dp-merf"), budget=BUDGET, out=tmp_path, exam=EXAM)
    released = []
    for one in stages:
        released.append(one.run(released))
    continual.examine(released, dataset, EXAM)
    ((labels, facts, test),) = given
    assert labels.tolist() == [label for label in range(6) for _ in range(2)]
    assert facts.classes == CLASSES
    order = (*PARTIES[2], *PARTIES[0])
    continual.examine([released[2], released[0]], dataset, EXAM)
    labels, facts, test = given[-1]
    assert labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert facts.classes == order
    eels = dataset.test.images[dataset.test.labels == CLASSES.index("eel")]
    assert test.images[test.labels == 0].equal(eels)


def test_the_guarantee_of_the_whole_is_the_largest_and_says_what_it_does_not_cover(tmp_path, dataset):
    course = run(dataset, tmp_path, seed=None)
    found = course.guarantee
    assert found["private"]
    assert found["epsilon"] == max(party["epsilon"] for party in found["parties"]) <= 4
    assert found["delta"] == 1e-5
    assert found["relation"] == "add-or-remove-one-record"
    assert [party["records"] for party in found["parties"]] == [50, 65, 35]
    assert [party["classes"] for party in found["parties"]] == [list(party) for party in PARTIES]
    assert "3 parties, whose records are said to be disjoint" in found["statement"]
    assert "said to be disjoint" in found["composition"]
    assert "epsilon 4 and delta 1e-05 for every record" in found["statement"]
    assert any("at several parties" in sentence for sentence in found["not_covered"])
    assert any("number of records of each party is public" in sentence for sentence in found["not_covered"])


def test_a_delta_that_is_too_large_for_all_records_together_is_refused_before_a_stage_is_run(tmp_path, dataset):
    budget = dataclasses.replace(BUDGET, delta=0.01)  # below 1/65, and not below 1/150
    with pytest.raises(ReleaseError, match=r"0.01, is not below 1/150: publishing one record in the clear"):
        run(dataset, tmp_path / "out", budget=budget, seed=None)
    assert not (tmp_path / "out").exists()


def test_a_course_with_seeded_noise_says_that_it_is_not_private(tmp_path, dataset):
    guarantee = run(dataset, tmp_path).guarantee
    assert not guarantee["private"]
    assert guarantee["statement"].startswith("NOT PRIVATE")


def test_a_classifier_that_travels_forgets(tmp_path, dataset):
    course = run(dataset, tmp_path, "dp-sgd", budget=PrivacyBudget(epsilon=float("inf")))
    scores = course.scores[AS_TRAINED]
    assert scores[0].mean > 90
    assert [one.parties[-1] > 90 for one in scores] == [True] * 3  # each party's classes are learned
    assert max(scores[-1].parties[:2]) < 70  # and earlier ones forgotten
    assert scores[-1].forgetting > 40
    assert course.guarantee["epsilon"] == "inf"


@pytest.mark.parametrize("method", ["dp-merf", "dp-sgd"])
def test_a_course_that_was_stopped_goes_on_and_finished_stages_are_not_run_again(
    tmp_path, dataset, monkeypatch, method
):
    whole = run(dataset, tmp_path / "whole", method)
    name = "train" if method == "dp-sgd" else "generate"
    made, real = [], getattr(pipeline, name)

    def counted(data, **how):
        if len(made) == 1:
            made.append("stopped")
            raise KeyboardInterrupt
        made.append(how["out"].parent.name)
        return real(data, **how)

    monkeypatch.setattr(pipeline, name, counted)
    with pytest.raises(KeyboardInterrupt):
        run(dataset, tmp_path / "again", method)
    again = run(dataset, tmp_path / "again", method)
    assert made == ["stage-1", "stopped", "stage-2", "stage-3"]
    assert again.scores == whole.scores
    seals = [[party["digest"] for party in one.guarantee["parties"]] for one in (whole, again)]
    assert seals[0] == seals[1]


def test_a_finished_course_is_only_looked_at_again(tmp_path, dataset, monkeypatch):
    first = run(dataset, tmp_path / "out", seed=None)
    for name in ("privset.pipeline.generate", "privset.continual.exam.train_and_test"):
        monkeypatch.setattr(name, lambda *_, **__: pytest.fail("done again"))
    assert run(dataset, tmp_path / "out", seed=None).to_json() == first.to_json()


def test_another_exam_tests_again_and_makes_nothing_again(tmp_path, dataset, monkeypatch):
    run(dataset, tmp_path / "out", seed=None)
    monkeypatch.setattr(pipeline, "generate", lambda *_, **__: pytest.fail("made again"))
    more = run(dataset, tmp_path / "out", seed=None, exam=dataclasses.replace(EXAM, networks=1))
    assert len(more.scores["tiny"][-1].accuracy) == 1


def test_other_test_images_are_tested_on_again(tmp_path, dataset):
    before = run(dataset, tmp_path / "out", seed=None)
    other = dataclasses.replace(dataset.test, labels=dataset.test.labels.flip(0))
    after = run(dataclasses.replace(dataset, test=other), tmp_path / "out", seed=None)
    assert after.guarantee == before.guarantee
    assert after.evaluations["tiny"][-1].confusion != before.evaluations["tiny"][-1].confusion


def test_a_stage_that_was_changed_stops_the_course(tmp_path, dataset):
    run(dataset, tmp_path / "out")
    shutil.rmtree(tmp_path / "out" / "stage-3")
    (tmp_path / "out" / "stage-1" / "release" / "ledger.jsonl").write_text("{}")
    with pytest.raises(ReleaseError, match="not what it claims to be"):
        run(dataset, tmp_path / "out")


@pytest.mark.parametrize(
    ("change", "words", "error"),
    [
        ({"parties": ()}, "no party", ConfigError),
        ({"parties": (CLASSES[:2], ("cat", "gnu"))}, "no class 'gnu'", DataError),
        ({"exam": dataclasses.replace(EXAM, recipes=("papr",))}, "no recipe 'papr'", ConfigError),
        ({"exam": dataclasses.replace(EXAM, classifier="mpl")}, "mpl", ConfigError),
        ({"exam": dataclasses.replace(EXAM, networks=0)}, "at least one network", ConfigError),
        ({"budget": PrivacyBudget(epsilon=4.0, delta=0.02)}, "publishing one record in the clear", PrivsetError),
        ({"budget": PrivacyBudget(epsilon=0.01, accountant="rdp")}, "cannot be paid for", PrivsetError),
    ],
)
def test_what_cannot_be_done_is_refused_before_a_stage_is_run(tmp_path, dataset, change, words, error):
    with pytest.raises(error, match=words):
        run(dataset, tmp_path / "out", **change)
    assert not (tmp_path / "out").exists()


def test_without_test_images_of_each_class_nothing_is_spent(tmp_path, dataset):
    some = dataclasses.replace(dataset, test=None)
    with pytest.raises(ConfigError, match=r"no test images of ant, bee.*--test-fraction"):
        run(some, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_of_something_else_is_left_alone(tmp_path, dataset):
    (tmp_path / "stage-fright.txt").write_text("dear")
    with pytest.raises(ReleaseError, match=r"holds something else \(stage-fright.txt\)"):
        run(dataset, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["stage-fright.txt"]


@pytest.mark.parametrize("method", ["dp-merf", "dp-sgd"])
def test_a_class_whose_name_is_not_valid_unicode_is_called_the_same_everywhere(tmp_path, dataset, method):
    """As names of folders may be: certificates spell them out, and so do notes and what is compared with them."""
    classes = ("ant\udcff", *CLASSES[1:])
    odd = dataclasses.replace(dataset, facts=dataclasses.replace(dataset.facts, classes=classes))
    _, course = (run(odd, tmp_path, method, parties=(classes[:2], classes[2:4], classes[4:])) for _ in range(2))
    assert course.parties[0] == ("ant\\udcff", "bee")
    assert course.guarantee["parties"][0]["classes"] == ["ant\\udcff", "bee"]
    assert continual.check_note(tmp_path / "stage-1")


def test_the_parties_of_a_joint_release_that_was_received_are_counted_and_may_overlap(tmp_path, dataset):
    folders = [tmp_path / name for name in ("a", "b")]
    for classes, folder in zip(PARTIES, folders, strict=False):
        stage(dataset, classes, folder, seed=None)
    merge(folders, out=tmp_path / "joint")
    accepted = dataclasses.replace(BUDGET, epsilon=10.0, delta=1e-4)
    received = continual.receive([tmp_path / "joint"], accepted, private=True)
    own = continual.Stage.prepare(
        dataset, PARTIES[2], number=2, method=method_named("dp-merf"), budget=BUDGET, out=tmp_path / "own"
    ).run(received)
    said = continual.guarantee([*received, own])["statement"]
    assert said.startswith("Up to 3 parties are behind 2 release(s), of which 1 joined those of several parties")
    assert "whose records may overlap" in said
    assert "made from their own records" not in said
    assert f"epsilon {rounded_up(received[0].certificate.guarantee.epsilon_spent)} and delta 2e-05" in said
    assert continual.guarantee(received)["statement"].startswith("Up to 2 parties are behind 1 release(s)")


def test_all_at_once_is_a_course_of_one_stage(tmp_path, dataset):
    course = run(dataset, tmp_path, parties=(CLASSES,), seed=None)
    assert [len(one.seen) for one in course.scores["tiny"]] == [6]
    assert course.guarantee["statement"].startswith(
        "One party published one release so far: it is differentially private"
    )


def test_the_releases_of_a_course_merge_into_one_that_stands_in_for_the_data(tmp_path, dataset, monkeypatch):
    run(dataset, tmp_path / "out", parties=PARTIES[::-1], seed=None)
    folders = [tmp_path / "out" / f"stage-{number}" / "release" for number in (1, 2, 3)]
    merged = merge(folders, out=tmp_path / "merged", disjoint=True)
    assert merged.certificate.facts.classes == ("eel", "fox", "cat", "dog", "ant", "bee")
    assert merged.certificate.guarantee.epsilon_spent <= 4
    assert verify(tmp_path / "merged").ok
    given = []
    monkeypatch.setattr("privset.evaluation.protocol.evaluate", lambda _images, labels, *_: given.append(labels))
    evaluate_release(merged, dataset)
    assert given[0].tolist() == [4, 4, 5, 5, 2, 2, 3, 3, 0, 0, 1, 1]  # numbered as the data numbers them


def test_a_merged_set_is_reported_with_its_own_evaluation(tmp_path, dataset):
    run(dataset, tmp_path / "out", parties=PARTIES[::-1], seed=None)
    folders = [tmp_path / "out" / f"stage-{number}" / "release" for number in (1, 2, 3)]
    merged = merge(folders, out=tmp_path / "merged", disjoint=True)
    found = evaluate_release(merged, dataset, classifier="mlp", recipe="tiny", runs=1)
    assert found.classes == CLASSES != merged.certificate.facts.classes
    (tmp_path / "found.json").write_text(json.dumps(found.to_json() | {"digest": merged.certificate.contents.digest}))
    (subject,) = add_evaluations(read_subjects([merged.path]), [tmp_path / "found.json"])
    assert [one.classes for one in subject.evaluations] == [CLASSES]


def test_the_size_of_a_joined_set_of_the_same_records_does_not_keep_it_from_being_tested(tmp_path, dataset):
    """It is a sum, in which each record counts as often as there are parts that it is in."""
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        pipeline.generate(dataset, method=method_named("dp-merf"), budget=BUDGET, out=folder)
    merged = merge(folders, out=tmp_path / "merged")
    assert merged.certificate.facts.size == 2 * dataset.facts.size
    assert evaluate_release(merged, dataset, classifier="mlp", recipe="tiny", runs=1).images == 24
