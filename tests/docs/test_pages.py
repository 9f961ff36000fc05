"""What holds for every page: links lead somewhere, generated parts are up to date, nothing is left out."""

import importlib.util
import json
import re
import shutil
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest
from tests.docs.pages import DOCS, PAGES, ROOT, anchors, blocks, links, name_of

import privset
from privset.methods import METHODS
from privset.release.examination import Examination
from privset.release.joint_examination import JointExamination
from privset.studies import STUDIES, Results
from privset.studies.tables import filled

spec = importlib.util.spec_from_file_location("exhibits", ROOT / "docs" / "exhibits.py")
assert spec is not None
assert spec.loader is not None
exhibits = importlib.util.module_from_spec(spec)
spec.loader.exec_module(exhibits)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_to_a_file_or_a_heading(page):
    for link in links(page):
        path, _, heading = link.partition("#")
        target = page if not path else (page.parent / path).resolve()
        assert target.exists(), f"{link} leads nowhere"
        if heading:
            assert heading in anchors(target), f"{link}: {name_of(target)} has no such heading"


@pytest.mark.parametrize("place", [*PAGES, *(ROOT / "src" / "privset" / "methods").glob("*.py")], ids=name_of)
def test_nothing_promises_a_single_minute(place):
    """A machine that has other work takes several; what was measured is in tables that are made from files."""
    assert not re.search(r"\b(a|one) minute\b", place.read_text(encoding="utf-8"), re.IGNORECASE)


def test_a_study_that_means_nothing_may_be_tried_without_a_page_changing(tmp_path):
    before = exhibits.studies(tmp_path)
    place = tmp_path / "smoke" / "digits-eps10-ipc1.json"
    place.parent.mkdir()
    some = next((ROOT / "results" / "moments").glob("*.json"))
    place.write_bytes(some.read_bytes())
    assert exhibits.studies(tmp_path) == before


def test_a_cell_of_which_some_sets_are_measured_says_how_many(tmp_path):
    before = exhibits.studies(tmp_path)
    study = STUDIES["psg"]
    cell = next(one for one in study.cells if one.sets == 3)
    Results(tmp_path, study).keep_part(cell, 1, {"recipes": {recipe: {} for recipe in cell.recipes}})
    after = exhibits.studies(tmp_path)
    assert f"| `{cell.name}` | missing |" in before
    assert f"| `{cell.name}` | 1 of 3 sets so far |" in after
    assert len(set(after.splitlines()) - set(before.splitlines())) == 1


def test_sets_of_unfinished_cells_on_file_are_such_that_a_run_goes_on_from_them():
    for place in (ROOT / "results").glob("*/.parts/*.json"):
        if place.name.endswith(".pieces.json"):  # of one that is being made here and now
            continue
        study = STUDIES[place.parents[1].name]
        shelf = Results(ROOT / "results", study)
        name, number = place.stem.rsplit(".", 1)
        cell = next((one for one in study.cells if one.name == name), None)
        other = f"{name_of(place)} is of another definition: delete it"
        assert cell is not None, other
        assert shelf.part(cell, int(number)) is not None, other
        assert shelf.cell(cell) is None, f"{name_of(place)}: the cell is finished"
        assert json.loads(place.read_bytes())["commit"]


def test_published_numbers_are_counted_by_how_near_what_was_measured_comes(tmp_path):
    some = json.loads((ROOT / "results" / "psg" / "mnist-eps10-ipc10.json").read_bytes())
    measured = {
        "mnist-eps10-ipc1": 79.89,
        "mnist-eps10-ipc10": 93.43,
        "mnist-eps10-ipc20": 97.2,
        "mnist-eps1-ipc10": 9.0,
    }
    (tmp_path / "psg").mkdir()
    for cell, mean in measured.items():  # where 81.4, 94.9 and 95.6 were published, and nothing
        recipes = {"paper": {"accuracy": some["accuracy"] | {"mean": mean}}}
        (tmp_path / "psg" / f"{cell}.json").write_text(json.dumps(some | {"recipes": recipes}), encoding="utf-8")
    assert "| [psg](#psg) | `paper` | 16 | 3 | 2 | 1 | 0 |\n" in exhibits.met(tmp_path)
    measured_last = some | {"recipes": {"paper": {"accuracy": some["accuracy"] | {"mean": 79.84}}}}
    (tmp_path / "psg" / "mnist-eps10-ipc1.json").write_text(json.dumps(measured_last), encoding="utf-8")
    assert "| [psg](#psg) | `paper` | 16 | 3 | 1 | 1 | 1 |\n" in exhibits.met(tmp_path)


def test_links_are_found_at_all():
    assert len([link for page in PAGES for link in links(page)]) > 80


def test_tables_and_picture_are_those_of_the_results_on_file():
    marked = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        marked += re.findall(r"<!-- (results|studies|methods|met)\b", text)
        made = exhibits.filled(filled(text, ROOT / "results"), ROOT / "results")
        assert made == text, f"{name_of(page)}: run `make tables`"
    assert set(marked) == {"results", "studies", "methods", "met"}
    drawn = exhibits.pictures(ROOT / "results")
    assert {place.name for place in drawn} == {place.name for place in exhibits.PICTURE.parent.iterdir()}
    for place, content in drawn.items():
        assert place.read_bytes() == content, "run `make tables`"


def test_every_study_is_on_the_page_about_reproduction_with_its_command():
    text = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    for study in STUDIES.values():
        assert f"\n## {study.name}\n" in text
        assert f"\nprivset study run {study.name}\n" in text
        assert all(f"| `{cell.name}` |" in text for cell in study.cells)


def test_every_method_has_a_page():
    assert {path.stem for path in DOCS if path.parent.name == "methods"} >= METHODS.keys()


def test_everything_public_is_on_a_page_of_the_interface():
    shown = "".join(path.read_text(encoding="utf-8") for path in DOCS if path.parent.name == "api")
    directives = set(re.findall(r"^\.\. (?:auto\w+|py:data|py:module):: (?:privset\.)?(\w+)", shown, re.MULTILINE))
    assert directives >= set(privset.__all__) - {"__version__"}


def test_every_field_of_a_certificate_and_every_line_of_verify_is_explained():
    text = (ROOT / "docs" / "guide" / "reading-a-certificate.md").read_text(encoding="utf-8")
    fields, explained = text.split("## Every field")[1], text.split("## The five lines")[0]
    assert all(f"`{name}`" in fields for name in privset.Certificate.model_fields)
    rows = re.findall(r"^\| ([^|]+) \|", explained, re.MULTILINE)
    assert {name for row in rows for name in row.split(", ")} - {"check"} == checks_of_verify()


def checks_of_verify() -> set[str]:
    """The name of every check there is, whatever a release holds; all parts of a joint one are "part"."""
    names = {"source"}  # of `verify --source`
    for kind in ("set", "statistics", "classifier"):
        contents, joined = SimpleNamespace(kind=kind, generator="any"), SimpleNamespace(parts=(1, 2))
        certificate: Any = SimpleNamespace(contents=contents, joined=joined, party=SimpleNamespace(), snapshots="any")
        for examination in (Examination, JointExamination):
            names |= {re.sub(r" \d+$", "", name) for name, _ in examination(ROOT, b"", certificate).all()}
    return names


def test_every_decision_is_in_the_list_of_decisions():
    listed = set(links(ROOT / "docs" / "decisions" / "index.md"))
    assert listed == {path.name for path in DOCS if path.parent.name == "decisions"} - {"index.md"}


def test_the_readme_names_every_method_and_what_joins_releases():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in METHODS:
        assert f"docs/methods/{name}.md" in text
    for words in ("--method dp-sgd", "privset merge", "privset continual"):
        assert words in text


@pytest.mark.parametrize("target", ["clean", "demo"])
def test_make_leaves_nothing_of_an_earlier_demo(target):
    make = shutil.which("make")
    if make is None:
        pytest.skip("there is no make")
    told = subprocess.run([make, "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    removed = {word for line in told.splitlines() if line.startswith("rm -rf") for word in line.split()}
    assert removed >= {f"demo-release{end}" for end in ("", ".ledger.jsonl", ".unfinished", ".preview.png")}


def test_the_readme_is_short_and_its_example_has_ten_lines():
    page = ROOT / "README.md"
    assert len(page.read_text(encoding="utf-8").splitlines()) <= 120
    (example,) = [block for block in blocks(page) if block.kind == "python"]
    assert len([line for line in example.text.splitlines() if line.strip()]) == 10
