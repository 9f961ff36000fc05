"""Several releases as one: the union of their images, and a guarantee that follows from theirs and can be checked."""

import dataclasses
import json
import math
import shutil

import pytest
import torch
from tests.release.conftest import FACTS

from privset.errors import ReleaseError
from privset.exports import export
from privset.privacy.accounting import spend
from privset.release import Certificate, NoisyStatistics, load, merge, verify
from privset.release.certificate import sha256
from privset.release.joint import COUNTED, ON_TRUST
from privset.release.statement import rounded_up
from privset.report import guarantee
from privset.report.sources import read_subjects

OTHER = dataclasses.replace(FACTS, name="other", classes=("two", "three"), size=500)


@pytest.fixture
def parts(tmp_path, workshop):
    """Two releases that share a class, of different budgets."""
    return [
        workshop.publish(tmp_path / "a", workshop.plan(epsilon=0.5)),
        workshop.publish(tmp_path / "b", workshop.plan(epsilon=0.7, facts=OTHER), workshop.set(OTHER, per_class=3)),
    ]


@pytest.fixture
def merged(tmp_path, parts):
    return merge(parts, out=tmp_path / "merged", disjoint=True)


def failed(folder):
    return {check.name for check in verify(folder).failures}


def test_the_union_of_images_by_the_names_of_their_classes(parts, merged):
    first, second = map(load, parts)
    assert merged.set.facts.classes == ("zero", "one", "two", "three")
    assert merged.set.images.equal(torch.cat([first.set.images, second.set.images]))
    assert merged.set.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4 + [2] * 3 + [3] * 3
    assert merged.set.per_class == (4, 4, 7, 3)
    assert (merged.set.facts.size, merged.set.facts.name) == (1500, "toy and other")


def test_disjoint_records_cost_the_largest_epsilon_and_the_word_for_it_is_on_record(parts, merged):
    certificate = merged.certificate
    ours, theirs = certificate.guarantee, [load(part).certificate.guarantee for part in parts]
    assert ours.private
    assert ours.epsilon_spent == theirs[1].epsilon_spent > theirs[0].epsilon_spent
    assert (ours.epsilon_budgeted, ours.delta) == (0.7, 1e-5)
    assert certificate.joined is not None
    assert certificate.joined.disjoint
    assert certificate.not_accounted[-2:] == ON_TRUST
    assert "says that no record is in two of them" in certificate.statement
    assert "word" in (merged.path / "README.md").read_text()
    assert verify(merged.path).ok
    assert [check.name for check in verify(merged.path).checks if check.name.startswith("part")] == ["part 1", "part 2"]


def test_without_that_word_questions_add_up(tmp_path, parts):
    certificate = merge(parts, out=tmp_path / "sum").certificate
    theirs = [load(part).certificate for part in parts]
    ours = certificate.guarantee
    assert ours.delta == 2e-5
    assert ours.epsilon_budgeted == pytest.approx(1.2)
    together = spend([event for one in theirs for event in one.gaussian_events()], 2e-5)
    assert ours.epsilon_spent == together.best < sum(one.guarantee.epsilon_spent for one in theirs)
    assert ours.epsilon_spent > max(one.guarantee.epsilon_spent for one in theirs)
    assert "A record may be in several" in certificate.statement
    assert not set(ON_TRUST) & set(certificate.not_accounted)
    assert certificate.not_accounted[-1:] == COUNTED
    assert "at most" in COUNTED[0]
    assert "is at most the one stated" in (tmp_path / "sum" / "README.md").read_text()
    assert verify(tmp_path / "sum").ok


def test_one_part_without_a_guarantee_leaves_none(tmp_path, workshop, parts):
    seeded = workshop.publish(tmp_path / "c", workshop.plan(epsilon=0.6), noise="seeded")
    certificate = merge([*parts, seeded], out=tmp_path / "out", disjoint=True).certificate
    assert not certificate.guarantee.private
    assert certificate.statement.startswith("NOT PRIVATE. Seeded noise")
    assert verify(tmp_path / "out").ok
    none = workshop.publish(tmp_path / "d", workshop.plan(epsilon=math.inf))
    assert math.isinf(merge([*parts, none], out=tmp_path / "inf").certificate.guarantee.epsilon_spent)
    assert verify(tmp_path / "inf").ok


@pytest.mark.parametrize("name", ["certificate.json", "ledger.jsonl"])
def test_a_part_that_was_changed_or_taken_away_shows(merged, name):
    file = merged.path / "parts" / "2" / name
    content = file.read_bytes()
    file.write_bytes(content.replace(b"500", b"501") + b" ")
    assert "part 2" in failed(merged.path)
    file.unlink()
    assert {"files", "part 2"} <= failed(merged.path)
    file.write_bytes(content)
    assert verify(merged.path).ok
    (merged.path / "parts" / "2" / "more.txt").write_text("")
    assert failed(merged.path) == {"files"}


def forge(folder, edit):
    """Edit the joint certificate so that statement, digests and seal fit again."""
    from privset.release import card

    document = json.loads((folder / "certificate.json").read_text())
    edit(document)
    certificate = Certificate.parse(json.dumps(document).encode())
    certificate = certificate.model_copy(update={"statement": certificate.regenerated_statement()})
    (folder / "README.md").write_bytes(card.write(certificate).encode())
    digests = {name: sha256((folder / name).read_bytes()) for name in certificate.files}
    (folder / "certificate.json").write_bytes(certificate.model_copy(update={"files": digests}).resealed().to_bytes())


@pytest.mark.parametrize(
    "edit",
    [
        lambda document: document["guarantee"].update(epsilon_spent=0.3),
        lambda document: document["guarantee"].update(delta=1e-6),
        lambda document: document["facts"].update(size=15000),
        lambda document: document["events"].pop(),
        lambda document: document["not_accounted"].pop(),
        lambda document: document.update(method="moments"),
        lambda document: document.update(party={"classes": ["yak"], "received": ["0" * 64]}),
    ],
)
def test_a_careful_forger_of_the_joint_numbers_is_found(merged, edit):
    forge(merged.path, edit)
    assert "joint" in failed(merged.path)


def test_parts_that_add_up_cannot_be_called_disjoint_afterwards(tmp_path, parts):
    merge(parts, out=tmp_path / "sum")
    forge(tmp_path / "sum", lambda document: document["joined"].update(disjoint=True))
    assert "joint" in failed(tmp_path / "sum")


def test_a_part_cannot_be_exchanged_for_a_cheaper_one(tmp_path, workshop, merged):
    cheap = workshop.publish(
        tmp_path / "cheap", workshop.plan(epsilon=0.1, facts=OTHER), workshop.set(OTHER, per_class=3)
    )
    for name in ("certificate.json", "ledger.jsonl"):
        shutil.copy(cheap / name, merged.path / "parts" / "2" / name)
    forge(merged.path, lambda _: None)
    assert "part 2" in failed(merged.path)


def test_images_that_were_exchanged_show_even_if_all_digests_fit(merged):
    from privset.release import preview

    images = merged.set.images.clone()
    images[0] = 255 - images[0]
    other = dataclasses.replace(merged.set, images=images)
    (merged.path / "set.safetensors").write_bytes(other.to_bytes())
    (merged.path / "preview.png").write_bytes(preview.encode(preview.draw(other)))
    forge(merged.path, lambda document: document["contents"].update(digest=other.digest()))
    assert failed(merged.path) == {"images"}


def refused(words, folders, out, **options):
    with pytest.raises(ReleaseError, match=words):
        merge(folders, out=out, **options)
    assert not out.exists()


def test_what_does_not_go_together_is_refused_and_nothing_written(tmp_path, workshop, parts):
    out = tmp_path / "out"
    refused("two or more", parts[:1], out)
    refused("the same release as", [parts[0], *parts], out)
    dark = dataclasses.replace(FACTS, mean=(0.1,))
    refused("mean is", [*parts, workshop.publish(tmp_path / "dark", workshop.plan(facts=dark))], out)
    floats = workshop.publish(tmp_path / "floats", workshop.plan(), workshop.set(keep_floats=True))
    refused("do not go into one set", [*parts, floats], out)
    (parts[0] / "ledger.jsonl").write_text("{}")
    refused("not what it claims to be, so nothing is joined with it", parts, out)


def test_only_sets_are_joined_and_not_joined_ones_again(tmp_path, workshop, statistics, merged, parts):
    plan = workshop.measuring_plan()
    assert isinstance(workshop.statistics(plan), NoisyStatistics)
    refused("holds statistics", [*parts, statistics], tmp_path / "out")
    refused("joined from others itself", [merged.path, parts[0]], tmp_path / "out")


def test_sets_of_the_same_statistics_are_not_of_disjoint_records(tmp_path, workshop, statistics):
    twice = [workshop.distil(tmp_path / f"set{seed}", statistics, seed=seed) for seed in (1, 2)]
    refused("made from the same answers", twice, tmp_path / "out", disjoint=True)
    ours, theirs = merge(twice, out=tmp_path / "out").certificate, load(twice[0]).certificate
    assert ours.guarantee.private
    assert ours.guarantee.epsilon_spent <= theirs.guarantee.epsilon_spent  # paid for once
    assert ours.guarantee.delta == theirs.guarantee.delta
    assert (ours.events, ours.facts.size) == (theirs.events, theirs.facts.size)
    assert verify(tmp_path / "out").ok


def test_the_same_question_of_different_parts_stays_two_questions(tmp_path, workshop):
    """Added up they would cost more than the largest epsilon, which is what the certificate states."""
    again = dataclasses.replace(FACTS, name="again")
    parts = [workshop.publish(tmp_path / facts.name, workshop.plan(facts=facts)) for facts in (FACTS, again)]
    certificate = merge(parts, out=tmp_path / "out", disjoint=True).certificate
    theirs = [load(part).certificate for part in parts]
    assert theirs[0].events == theirs[1].events
    assert certificate.events == theirs[0].events + theirs[1].events
    (subject,) = read_subjects([tmp_path / "out"])
    shown = guarantee.budget(subject)
    assert "do not add up across parts" in shown
    stated = certificate.guarantee
    for event in certificate.gaussian_events():
        alone = spend([event], stated.delta).best
        assert alone <= stated.epsilon_spent
        assert rounded_up(alone) in shown


def test_parts_that_may_overlap_are_reported_with_at_most_so_many_records(tmp_path, parts, merged):
    merge(parts, out=tmp_path / "sum")
    overlapping, apart = read_subjects([tmp_path / "sum", merged.path])
    assert "at most 1,500" in guarantee.in_numbers(overlapping)
    assert "at most 1,500" not in guarantee.in_numbers(apart)


def test_a_joint_delta_that_is_too_large_for_the_records_is_refused(tmp_path, workshop):
    large = dataclasses.replace(FACTS, size=60_000)
    both = [
        workshop.publish(tmp_path / name, workshop.plan(facts=dataclasses.replace(large, name=name)))
        for name in ("north", "south")
    ]
    refused("1e-05, is not below 1/120,000", both, tmp_path / "out", disjoint=True)
    refused("2e-05, is not below 1/60,000", both, tmp_path / "out")


def test_verification_refuses_such_a_delta_too(monkeypatch, tmp_path, workshop):
    large = dataclasses.replace(FACTS, size=60_000)
    both = [
        workshop.publish(tmp_path / name, workshop.plan(facts=dataclasses.replace(large, name=name)))
        for name in ("north", "south")
    ]
    with monkeypatch.context() as patched:
        patched.setattr("privset.release.joint.check_delta", lambda *_, **__: None)
        merge(both, out=tmp_path / "out", disjoint=True)
        assert verify(tmp_path / "out").ok
    assert failed(tmp_path / "out") == {"joint"}


def test_the_card_of_a_joined_set_and_its_exports_have_the_ledgers_of_the_parts_and_claim_no_other(tmp_path, merged):
    assert not (merged.path / "ledger.jsonl").exists()
    words = (merged.path / "README.md").read_text()
    assert "- `ledger.jsonl`" not in words
    assert "- `config.toml`" not in words
    assert "- `parts/N/ledger.jsonl`" in words
    out = export(merged, to="npz", out=tmp_path / "exported")
    for number in (1, 2):
        for name in ("certificate.json", "ledger.jsonl"):
            kept = f"parts/{number}/{name}"
            assert (out / kept).read_bytes() == (merged.path / kept).read_bytes()


def test_a_joint_folder_that_exists_is_left_alone(tmp_path, parts):
    (tmp_path / "out").mkdir()
    with pytest.raises(ReleaseError, match="exists already"):
        merge(parts, out=tmp_path / "out")
