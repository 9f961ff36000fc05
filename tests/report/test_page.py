import base64
import dataclasses
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tests.release.conftest import Workshop
from tests.report.conftest import HOSTILE, evaluated, result
from tests.report.test_gallery import colour

from privset.release import NOT_ACCOUNTED, Certificate
from privset.report.page import page
from privset.report.sources import Result, Subject, add_evaluations, read_subjects


class Reader(HTMLParser):
    """What a browser would see: elements with their attributes, and text."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(content.decode())
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def subject(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return read_subjects([release])[0]


def test_every_panel_is_there_and_the_contents_lead_to_it(subject: Subject) -> None:
    found = Reader(page([subject]))
    names = [one["id"] for one in found.all("section")]
    assert names == ["images", "guarantee", "limits", "budget", "accuracy", "confusion", "trends", "use", "record"]
    assert [one["href"] for one in found.all("a")][1:] == [f"#{name}" for name in names]
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert not found.open


def test_the_guarantee_is_that_of_the_certificate_word_for_word(subject: Subject) -> None:
    text = Reader(page([subject])).text
    assert subject.certificate.statement in text
    assert all(sentence in text for sentence in NOT_ACCOUNTED)
    assert "add or remove one record" in text
    assert subject.certificate.seal in text


def test_nothing_is_fetched_from_anywhere(subject: Subject) -> None:
    content = page([subject])
    found = Reader(content)
    for name, attributes in found.tags:
        for attribute in ("src", "href", "srcset", "poster", "data", "action"):
            value = attributes.get(attribute) or ""
            assert value.startswith(("data:", "#")) or not value, (name, attribute, value)
    assert not re.search(rb"https?://|url\(|@import|//cdn", content)
    assert not found.all("link")
    (policy,) = [one["content"] for one in found.all("meta") if "http-equiv" in one]
    assert policy is not None
    assert policy.startswith("default-src 'none'; img-src data:;")


def test_the_policy_allows_the_one_script_that_is_there(subject: Subject) -> None:
    content = page([subject]).decode()
    (script,) = re.findall(r"<script>(.*?)</script>", content, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src &#x27;sha256-{digest}&#x27;" in content


def test_names_that_someone_else_chose_stay_text(hostile: Path, written: Any) -> None:
    subjects = add_evaluations(read_subjects([hostile]), [written(evaluated(hostile, classifier="<b>net</b>"))])
    found = Reader(page(subjects))
    assert len(found.all("script")) == 1
    assert not found.all("b")
    assert all("onload" not in attributes and "onerror" not in attributes for _, attributes in found.tags)
    assert found.text.count(HOSTILE) >= 2  # its images, and the confusion matrix
    assert "<b>net</b>" in found.text


def test_a_folder_whose_name_is_no_text_does_no_harm(subject: Subject) -> None:
    other = dataclasses.replace(subject, label="caf\udce9")
    assert "&#56553;" in page([subject, other]).decode()


def test_the_same_release_gives_the_same_page(release: Path) -> None:
    assert page(read_subjects([release])) == page(read_subjects([release]))


def test_five_hundred_images_that_no_one_can_compress_fit_into_two_megabytes(
    workshop: Workshop, tmp_path: Path
) -> None:
    made = colour(500, 10)
    plan = workshop.plan(facts=made.facts, per_class=50)
    folder = workshop.publish(tmp_path / "large", plan, made)
    content = page(read_subjects([folder]))
    assert content.count(b'class="tile"') == 500
    assert len(content) < 2_000_000


@pytest.mark.parametrize(
    ("settings", "noise", "reason"),
    [({"epsilon": float("inf")}, "system", "its epsilon is infinite"), ({}, "seeded", "its noise came from a seed")],
)
def test_what_is_not_private_says_so_before_anything_else(
    workshop: Workshop, tmp_path: Path, settings: dict[str, Any], noise: Any, reason: str
) -> None:
    folder = workshop.publish(tmp_path / "open", workshop.plan(**settings), noise=noise)
    found = Reader(page(read_subjects([folder])))
    assert f"NOT PRIVATE. This release has no guarantee: {reason}" in found.text
    assert found.text.index("NOT PRIVATE") < found.text.index("Delta")
    assert "toss a coin" not in found.text


def test_statistics_have_a_page_of_their_own(statistics: Path) -> None:
    found = Reader(page(read_subjects([statistics])))
    assert [one["id"] for one in found.all("section")] == [
        "statistics",
        "guarantee",
        "limits",
        "budget",
        "use",
        "record",
    ]
    assert "privset distil FOLDER" in found.text
    assert "Statistics of toy" in found.text


def test_releases_stand_side_by_side(release: Path, distilled: Path, statistics: Path) -> None:
    subjects = read_subjects([release, distilled, statistics])
    found = Reader(page(subjects))
    assert "3 releases side by side" in found.text
    # Two have images, three a guarantee; what is not covered is the same for all, and said once.
    assert len([one for one in found.all("div") if "gallery" in (one.get("class") or "")]) == 2
    assert len(found.all("blockquote")) == 3
    assert found.text.count(NOT_ACCOUNTED[0]) == 1


def test_without_evaluations_the_page_may_go_where_the_release_may(
    subject: Subject, release: Path, written: Any
) -> None:
    text = Reader(page([subject])).text
    assert "may be passed on wherever the release may" in text
    assert "For the data holder" not in text
    text = Reader(page(add_evaluations([subject], [written(evaluated(release))]))).text
    assert "may be passed on wherever" not in text
    assert "For the data holder" in text
    assert "training on the private records themselves" in text


def test_accuracies_of_studies_are_no_more_free_than_those_of_releases(subject: Subject) -> None:
    studies = [Result(**result(epsilon=value)) for value in (1.0, 2.0)]
    text = Reader(page([subject], studies)).text
    assert "accuracy against epsilon" in text
    assert "may be passed on wherever" not in text
    assert "accuracies on this page were measured on real images" in text
    assert "For the data holder: studies are measured on real images, the test images of the data they name" in text
    for unseen in ([studies[0]], [Result(**result(data="other", epsilon=value)) for value in (1.0, 2.0)]):
        text = Reader(page([subject], unseen)).text
        assert "may be passed on wherever" in text
        assert "For the data holder" not in text


def test_the_head_names_how_its_accuracy_was_measured_and_takes_no_maximum(
    subject: Subject, release: Path, written: Any
) -> None:
    documents = [evaluated(release), evaluated(release, classifier="mlp", accuracy=90.0)]
    found = page(add_evaluations([subject], [written(one) for one in documents]))
    head = found[: found.index(b"<nav")]
    assert "Test accuracy (convnet, recipe quick)81.0 %" in Reader(head + b"</body></html>").text
    assert b"91.0 %" not in head
    assert b"Best accuracy" not in found


def test_the_certificate_is_shown_whole(subject: Subject) -> None:
    text = Reader(page([subject])).text
    certificate: Certificate = subject.certificate
    for name in (*certificate.configuration, *certificate.files, *certificate.files.values(), *certificate.software):
        assert name in text
