"""One party at a time: what it reads, what it refuses, what it leaves behind."""

import dataclasses
import json
import shutil
from collections import Counter
from typing import Any

import numpy as np
import pytest
from tests.continual.conftest import BUDGET, CLASSES, dataset_of, method_named

from privset import load_data, pipeline
from privset.continual import Stage, receive
from privset.continual.receiving import find
from privset.data import Records, of_classes, of_labels
from privset.data.partitions import split
from privset.errors import ConfigError, DataError, ReleaseError
from privset.release import verify


def stage(
    dataset,
    classes,
    folder,
    number: Any = 1,
    method: Any = "dp-merf",
    received=(),
    budget: Any = BUDGET,
    seed: Any = 7,
    **options,
):
    one = Stage.prepare(
        dataset,
        classes,
        number=number,
        method=method_named(method),
        budget=budget,
        out=folder,
        noise_seed=seed,
        **options,
    )
    one.check_free()
    return one.run(receive(received, budget, private=False))


def write_part(dataset, classes, folder):
    """The records of some classes in a file of their own, as their party has them."""
    part = of_classes(dataset, classes)
    assert part.test is not None
    folder.mkdir()
    np.savez(
        folder / "zoo.npz",
        x=part.train.images[:, 0].numpy(), y=part.train.labels.numpy(),
        x_test=part.test.images[:, 0].numpy(), y_test=part.test.labels.numpy(),
        classes=np.array(classes),
    )  # fmt: skip
    return folder / "zoo.npz"


@pytest.mark.parametrize("method", ["moments", "psg", "dp-merf", "dp-sgd"])
def test_a_party_needs_its_own_records_and_what_it_received_and_nothing_else(tmp_path, dataset, method):
    """The same releases, byte for byte, whether all data is at hand or every other party's was deleted."""
    parties, whole = (CLASSES[:2], CLASSES[2:4], CLASSES[4:]), tmp_path / "whole"
    named = dataclasses.replace(dataset, facts=dataclasses.replace(dataset.facts, name="zoo.npz"))
    for number, party in enumerate(parties, 1):
        received = [whole / f"stage-{n}" for n in range(1, number)]
        stage(named, party, whole / f"stage-{number}", number, method, received)
    files = [write_part(dataset, party, tmp_path / f"machine{number}") for number, party in enumerate(parties)]
    sent = []
    for number, party in enumerate(parties, 1):
        elsewhere = [file for file in files if file != files[number - 1]]
        for file in elsewhere:
            file.rename(file.with_suffix(".away"))  # no other party's records are to be found
        alone = tmp_path / f"machine{number - 1}" / "stage"
        stage(load_data(files[number - 1]), party, alone, number, method, sent, known=CLASSES)
        for file in elsewhere:
            file.with_suffix(".away").rename(file)
        sent.append(alone)
        here, there = (json.loads((one / "stage.json").read_text()) for one in (alone, whole / f"stage-{number}"))
        assert here["digest"] == there["digest"]
        assert here["records"] == sum(dataset_of().train.labels.eq(CLASSES.index(name)).sum() for name in party)
    assert verify(sent[-1] / "release").ok


def test_the_noise_is_calibrated_to_the_partys_own_number_of_records(tmp_path, dataset):
    first = stage(dataset, ("ant", "bee"), tmp_path / "a", method="psg")
    second = stage(dataset, ("cat", "dog"), tmp_path / "b", method="psg")
    for one, size in ((first, 50), (second, 65)):
        assert one.certificate.facts.size == size
        assert one.certificate.events[0].sampling_rate == 16 / size
    assert first.certificate.events[0].noise_multiplier > second.certificate.events[0].noise_multiplier


def test_each_stage_has_noise_of_its_own(tmp_path, dataset):
    twice = [stage(dataset, ("ant", "bee"), tmp_path / str(number), number) for number in (1, 2)]
    assert twice[0].certificate.contents.digest != twice[1].certificate.contents.digest


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


def test_a_party_too_many_for_the_delta_of_all_is_refused_before_anything_is_charged(tmp_path, dataset):
    budget = dataclasses.replace(BUDGET, delta=0.01)  # 50 and 65 records: below 1 over each, and not over both
    stage(dataset, ("ant", "bee"), tmp_path / "one", budget=budget, seed=None)
    with pytest.raises(ReleaseError, match=r"is not below 1/115"):
        stage(dataset, ("cat", "dog"), tmp_path / "two", 2, received=[tmp_path / "one"], budget=budget, seed=None)
    assert not (tmp_path / "two").exists()


def test_of_data_that_was_split_first_one_record_more_changes_one_part_by_one_but_perhaps_another_partys():
    """Why only the maximum is stated: docs/proofs/parallel.md, parts of data that was split for testing first."""
    whole, elsewhere = dataset_of().train, 0
    parties = (CLASSES[:2], CLASSES[2:4], CLASSES[4:])

    def kept(records):
        train, test = split(records, len(whole) // 2 / len(records))
        assert len(test) == len(whole) // 2
        parts = [of_labels(train, CLASSES, party) for party in parties]
        return [Counter(image.numpy().tobytes() for image in part.images) for part in parts]

    for more in range(20):
        fewer = [index for index in range(len(whole)) if index != more]
        before, after = kept(Records(whole.images[fewer], whole.labels[fewer])), kept(whole)
        grown = [place for place in range(3) if before[place] != after[place]]
        assert len(grown) == 1
        assert (after[grown[0]] - before[grown[0]]).total() == 1
        assert not before[grown[0]] - after[grown[0]]
        elsewhere += grown[0] != int(whole.labels[more]) // 2
    assert elsewhere


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


@pytest.mark.parametrize(
    ("classes", "words", "error"),
    [
        (("ant",), "ant only, and needs two or more", ConfigError),
        (("ant", "gnu"), "no class 'gnu'", DataError),
        (("ant", "ant"), "different classes", DataError),
    ],
)
def test_impossible_parties_are_refused(tmp_path, dataset, classes, words, error):
    with pytest.raises(error, match=words):
        stage(dataset, classes, tmp_path / "one")
    assert not (tmp_path / "one").exists()


def test_images_of_another_form_are_refused(tmp_path, dataset):
    stage(dataset, ("ant", "bee"), tmp_path / "one")
    other = dataclasses.replace(dataset, facts=dataclasses.replace(dataset.facts, mean=(0.3,)))
    with pytest.raises(ReleaseError, match=r"mean \(0.5,\) and not \(0.3,\)"):
        stage(other, ("cat", "dog"), tmp_path / "two", 2, received=[tmp_path / "one"])


def test_a_finished_stage_is_not_run_again_and_not_taken_for_another(tmp_path, dataset, monkeypatch):
    stage(dataset, ("ant", "bee"), tmp_path / "one", seed=None)
    before = (tmp_path / "one" / "release" / "certificate.json").read_bytes()
    monkeypatch.setattr(pipeline, "generate", lambda *_, **__: pytest.fail("it was made again"))
    stage(dataset, ("ant", "bee"), tmp_path / "one", seed=None)
    assert (tmp_path / "one" / "release" / "certificate.json").read_bytes() == before
    for change, words in (
        ({"method": "moments"}, "other method, other settings"),
        ({"budget": dataclasses.replace(BUDGET, epsilon=3.0)}, "other budget"),
        ({"seed": 1}, "other noise"),
    ):
        with pytest.raises(ReleaseError, match=words):
            stage(dataset, ("ant", "bee"), tmp_path / "one", **({"seed": None} | change))
    with pytest.raises(ReleaseError, match="other data"):
        stage(dataset, ("ant", "cat"), tmp_path / "one", seed=None)


def test_a_classifier_goes_on_from_the_last_one_and_needs_its_note(tmp_path, dataset):
    for folder, received in (("one", []), ("two", ["one"])):
        party = ("ant", "bee") if folder == "one" else ("cat", "dog")
        stage(dataset, party, tmp_path / folder, 1 + len(received), "dp-sgd", [tmp_path / name for name in received])
    fresh = stage(dataset, ("cat", "dog"), tmp_path / "fresh", 2, "dp-sgd")
    note = json.loads((tmp_path / "two" / "stage.json").read_text())
    assert note["digest"] != fresh.certificate.contents.digest  # same records and noise, other start
    assert [one["classes"] for one in note["received"]] == [["ant", "bee"]]
    shutil.copytree(tmp_path / "one" / "release", tmp_path / "bare")
    with pytest.raises(ReleaseError, match="does not say what classes its party has"):
        receive([tmp_path / "bare"], BUDGET, private=False)
    with pytest.raises(ReleaseError, match="holds something else than the sets that dp-merf makes"):
        stage(dataset, ("cat", "dog"), tmp_path / "three", 2, "dp-merf", [tmp_path / "one"])
    with pytest.raises(ReleaseError, match="this party would train another"):
        stage(dataset, ("eel", "fox"), tmp_path / "four", 2, "dp-sgd", [tmp_path / "one"], known=CLASSES[::-1])


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


def test_a_note_that_was_changed_is_refused(tmp_path, dataset):
    stage(dataset, ("ant", "bee"), tmp_path / "one")
    note = tmp_path / "one" / "stage.json"
    note.write_text(note.read_text().replace('"bee"', '"cat"'))
    with pytest.raises(ReleaseError, match="names other classes than the release"):
        receive([tmp_path / "one"], BUDGET, private=False)
    note.write_text("{")
    with pytest.raises(ReleaseError, match="cannot be read"):
        receive([tmp_path / "one"], BUDGET, private=False)
