"""What a party takes from others: verified, complete, in line, and not too dear."""

import dataclasses
import shutil

import pytest
from tests.continual.conftest import BUDGET, CLASSES, method_named, stage

from privset.continual import Exam, Stage, examine, receive
from privset.continual.finding import find
from privset.continual.received import check_form
from privset.errors import ReleaseError
from privset.exports import FORMATS, export


def test_a_tampered_release_is_refused_before_anything_is_charged(tmp_path, dataset):
    stage(dataset, ("ant", "bee"), tmp_path / "one")
    certificate = tmp_path / "one" / "release" / "certificate.json"
    certificate.write_text(certificate.read_text().replace('"epsilon_spent": 3', '"epsilon_spent": 2'))
    with pytest.raises(ReleaseError, match="not what it claims to be, so nothing is learned from it"):
        stage(dataset, ("cat", "dog"), tmp_path / "two", 2, received=[tmp_path / "one"])
    assert not (tmp_path / "two").exists()


def test_a_release_that_cost_more_than_each_party_may_spend_is_refused(tmp_path, dataset):
    stage(dataset, ("ant", "bee"), tmp_path / "one", budget=dataclasses.replace(BUDGET, epsilon=6.0))
    with pytest.raises(ReleaseError, match=r"cost epsilon 6, .* may spend epsilon 4; .*\(--accept-epsilon\)"):
        stage(dataset, ("cat", "dog"), tmp_path / "two", 2, received=[tmp_path / "one"])
    assert len(receive([tmp_path / "one"], dataclasses.replace(BUDGET, epsilon=6.0), private=False)) == 1


def test_a_release_with_a_larger_delta_is_refused(tmp_path, dataset):
    stage(dataset, ("ant", "bee"), tmp_path / "one", budget=dataclasses.replace(BUDGET, delta=1e-4))
    with pytest.raises(ReleaseError, match=r"cost delta 0.0001, .* may spend delta 1e-05; .*\(--accept-delta\)"):
        receive([tmp_path / "one"], BUDGET, private=False)


def test_a_private_party_takes_nothing_that_is_not_private(tmp_path, dataset):
    stage(dataset, ("ant", "bee"), tmp_path / "one")  # seeded noise
    with pytest.raises(ReleaseError, match="not private, so what is learned from it would not be"):
        receive([tmp_path / "one"], BUDGET, private=True)


def test_a_class_belongs_to_one_party(tmp_path, dataset):
    stage(dataset, ("ant", "bee"), tmp_path / "one")
    stage(dataset, ("bee", "cat"), tmp_path / "two")
    with pytest.raises(ReleaseError, match=r"both have the class 'bee'.*privset merge"):
        receive([tmp_path / "one", tmp_path / "two"], BUDGET, private=False)
    with pytest.raises(ReleaseError, match="has the class bee as well"):
        stage(dataset, ("bee", "cat"), tmp_path / "three", 2, received=[tmp_path / "one"])
    assert not (tmp_path / "three").exists()


def test_images_of_another_form_are_refused(tmp_path, dataset):
    own = stage(dataset, ("ant", "bee"), tmp_path / "one")
    other = dataclasses.replace(dataset, facts=dataclasses.replace(dataset.facts, mean=(0.3,)))
    words = r"one/release is of images of another form than \w+: mean 0\.5 and not 0\.3; .*\(--mean\)"
    with pytest.raises(ReleaseError, match=words):
        stage(other, ("cat", "dog"), tmp_path / "two", 2, received=[tmp_path / "one"])
    with pytest.raises(ReleaseError, match=words):
        examine([own], other, Exam())


def test_all_that_is_of_another_form_is_named_with_the_options_for_it(dataset):
    grey = dataset.facts
    colour = dataclasses.replace(grey, channels=3, height=16, width=24, mean=(0.5, 0.4, 0.3), std=(1.0, 1.0, 1.0))
    check_form("it", grey, dataclasses.replace(grey, name="another", size=3))
    with pytest.raises(ReleaseError) as caught:
        check_form("it", colour, grey)
    for words in ("size 16x24 and not", "channels 3 and not 1", "mean 0.5 0.4 0.3 and not 0.5", "std 1.0 1.0 1.0"):
        assert words in str(caught.value)
    assert str(caught.value).endswith("(--size, --channels, --mean, --std)")


def test_classifiers_are_taken_as_one_line_from_the_first_to_the_last(tmp_path, dataset):
    """Each says something of the records of all before it: one left out would not be in the guarantee of the whole."""
    line, parties = [], (CLASSES[:2], CLASSES[2:4], CLASSES[4:])
    for number, (party, name) in enumerate(zip(parties, ("west", "east", "south"), strict=True), 1):
        stage(dataset, party, tmp_path / "all" / name, number, "dp-sgd", line, known=CLASSES)
        line.append(tmp_path / "all" / name)
    for given in (line, line[::-1], [tmp_path / "all"]):  # by name, east would be before west
        assert [one.classes for one in receive(given, BUDGET, private=False)] == list(parties)
    for given in (line[1:], line[2:], [line[0], line[2]]):
        with pytest.raises(ReleaseError, match="goes on from a classifier that was not received"):
            receive(given, BUDGET, private=False)
    stage(dataset, CLASSES[4:], tmp_path / "fork", 2, "dp-sgd", line[:1], known=CLASSES)
    with pytest.raises(ReleaseError, match=r"fork\S* does not go on from \S*east|east\S* does not go on from \S*fork"):
        receive([*line[:2], tmp_path / "fork"], BUDGET, private=False)
    stage(dataset, CLASSES[4:], tmp_path / "new", 1, "dp-sgd", known=CLASSES)
    with pytest.raises(ReleaseError, match="does not go on from"):
        receive([line[0], tmp_path / "new"], BUDGET, private=False)


def test_a_classifier_that_cost_too_much_cannot_be_left_out(tmp_path, dataset):
    """Nor its epsilon: who goes on from one that goes on from it would state a smaller one for its records."""
    dear = dataclasses.replace(BUDGET, epsilon=50.0)
    stage(dataset, CLASSES[:2], tmp_path / "dear", 1, "dp-sgd", budget=dear, known=CLASSES)
    one = Stage.prepare(
        dataset, CLASSES[2:4], number=2, method=method_named("dp-sgd"), budget=BUDGET, out=tmp_path / "cheap",
        known=CLASSES, noise_seed=7,
    )  # fmt: skip
    own = one.run(receive([tmp_path / "dear"], dear, private=False))
    (said,) = [words for words in own.certificate.not_accounted if "went on from" in words]
    assert "of epsilon 50 " in said
    assert "records of that classifier, of which this one says something too, are protected by that epsilon" in said
    with pytest.raises(ReleaseError, match="not received"):
        stage(dataset, CLASSES[4:], tmp_path / "last", 2, "dp-sgd", [tmp_path / "cheap"], known=CLASSES)
    with pytest.raises(ReleaseError, match="cost epsilon"):
        stage(dataset, CLASSES[4:], tmp_path / "last", 3, "dp-sgd", [tmp_path / "dear", tmp_path / "cheap"])
    assert not (tmp_path / "last").exists()


def test_what_is_received_is_of_one_kind_and_given_once(tmp_path, dataset):
    stage(dataset, CLASSES[:2], tmp_path / "set")
    stage(dataset, CLASSES[2:4], tmp_path / "classifier", method="dp-sgd", known=CLASSES)
    with pytest.raises(ReleaseError, match=r"set/release is a set and \S*classifier/release a classifier"):
        receive([tmp_path / "set", tmp_path / "classifier"], BUDGET, private=False)
    with pytest.raises(ReleaseError, match="are the same release; give it once"):
        receive([tmp_path / "set", tmp_path / "set"], BUDGET, private=False)


def test_a_stage_that_is_repeated_among_later_ones_is_told_so(tmp_path, dataset):
    line = [tmp_path / "all" / name for name in ("1", "2", "3")]
    for number, folder in enumerate(line, 1):
        party = CLASSES[2 * number - 2 : 2 * number]
        stage(dataset, party, folder, number, "dp-sgd", line[: number - 1], known=CLASSES)
    with pytest.raises(ReleaseError, match=r"3/release is a later stage than \S*2, and goes on from it"):
        receive([tmp_path / "all"], BUDGET, private=False, own=line[1])


def test_releases_are_found_in_order_and_bare_ones_too(tmp_path, dataset):
    own = stage(dataset, ("ant", "bee"), tmp_path / "course" / "stage-2").release.path
    shutil.copytree(own, tmp_path / "course" / "stage-10" / "release")
    shutil.copytree(own, tmp_path / "course" / "stage-1")
    found = [path.relative_to(tmp_path).as_posix() for path in find([tmp_path / "course"])]
    assert found == ["course/stage-1", "course/stage-2/release", "course/stage-10/release"]
    others = [path.relative_to(tmp_path).as_posix() for path in find([tmp_path / "course"], own=own.parent)]
    assert others == ["course/stage-1", "course/stage-10/release"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ReleaseError, match="no release in it"):
        find([tmp_path / "empty"])
    with pytest.raises(ReleaseError, match=r"nowhere cannot be read \(No such file"):
        find([tmp_path / "nowhere"])
    (tmp_path / "course" / "evaluations").mkdir()  # a course has one
    assert len(find([tmp_path / "course"])) == 3


@pytest.mark.parametrize("left", ["release/set.safetensors", "stage.json", "release.unfinished/lock", "images/1.png"])
def test_what_is_not_whole_in_a_folder_of_releases_is_not_passed_over(tmp_path, dataset, left):
    """As if it had not been received: a party would go on, and pay, without it."""
    stage(dataset, ("ant", "bee"), tmp_path / "received" / "one")
    broken = tmp_path / "received" / "two" / left
    broken.parent.mkdir(parents=True)
    broken.touch()
    with pytest.raises(ReleaseError, match="received has two, with no release that is whole; get it again"):
        find([tmp_path / "received"])
    assert len(find([tmp_path / "received"], own=tmp_path / "received" / "two")) == 1
    with pytest.raises(ReleaseError, match="no release"):
        find([tmp_path / "received" / "two"])


def test_in_a_folder_of_releases_nothing_is_passed_over(tmp_path, dataset):
    own = stage(dataset, ("ant", "bee"), tmp_path / "all" / "one").release.path
    shutil.copytree(own, tmp_path / "all" / "release")  # called as a stage calls its own
    for name in ("continual.json", "guarantee.json", "accuracy.svg", "accuracy.png", "Thumbs.db", ".hidden"):
        (tmp_path / "all" / name).touch()  # as beside the stages of a course
    assert [path.name for path in find([tmp_path / "all"])] == ["release", "release"]
    mine = tmp_path / "all" / "mine" / "two"
    mine.mkdir(parents=True)
    assert len(find([tmp_path / "all"], own=mine)) == 2
    for name in ("three.zip", "scan.png", "notes.txt", "README.md", "results.json"):
        (tmp_path / "all" / name).touch()
        with pytest.raises(ReleaseError, match=f"all has {name}, with no release"):
            find([tmp_path / "all"], own=mine)
        (tmp_path / "all" / name).unlink()
    (tmp_path / "all" / "gone").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ReleaseError, match="all has gone, with no release"):
        find([tmp_path / "all"], own=mine)


@pytest.mark.parametrize("to", FORMATS)
def test_an_export_beside_received_stages_is_named_and_not_taken_for_one(tmp_path, dataset, to):
    stage(dataset, ("ant", "bee"), tmp_path / "all" / "north")
    copy = export(tmp_path / "all" / "north", to=to)
    assert copy == tmp_path / "all" / f"north-{to}"
    with pytest.raises(ReleaseError, match=rf"all has north-{to}, an export to {to}: .*; move it out of there, or"):
        find([tmp_path / "all"])
    with pytest.raises(ReleaseError, match=rf"north-{to} is an export to {to}: .*; give that release"):
        find([copy])
    copy.rename(tmp_path / "moved")
    assert len(receive([tmp_path / "all"], BUDGET, private=False)) == 1
