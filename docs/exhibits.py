"""What these pages show that is on file elsewhere, written by `make tables` and never by hand.

- ``images/sets.png``: two synthetic sets that a study made, side by side;
- ``images/gradients-*.svg``: how long a clipped gradient sum takes, from `results/speed`;
- ``images/psg-size.svg``: how long the parts of PSG's loop take, against the size of the set, from there, too;
- ``images/continual-*.svg``: accuracy against stage, as the study `continual` drew it;
- ``images/psg-*-along.svg``: accuracy against epsilon, as the study `psg` drew it;
- in ``reproduction.md``, between ``<!-- studies -->`` and ``<!-- end of studies -->``: every study, its command, every
  cell, and whether it is on file in ``results/``;
- there, between ``<!-- met -->`` and ``<!-- end of met -->``: how many published numbers are measured, and met;
- in ``methods/index.md``, between ``<!-- methods -->`` and ``<!-- end of methods -->``: every method there is.
"""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

from PIL import Image

from privset.evaluation.figure import Curve, draw
from privset.methods import METHODS, MeasuringMethod
from privset.studies import STUDIES, Cell, Results, Study
from privset.studies.results import percent

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "sets.png"
SHOWN = ("moments/mnist-eps1-ipc10.png", "moments/fashion-mnist-eps1-ipc10.png")
GAP = 24
_MEANINGLESS = ("smoke",)
"""Studies of which no file counts: whoever tried one has left it."""
NEAR = 1.5
"""Points from a published accuracy within which a measured one is taken for the same."""
AXES = {
    "batch": "records of 28x28, ConvNet of width 128",
    "width": "width of the ConvNet, 256 records of 28x28",
    "side": "side of the images, 256 of them, ConvNet of width 128",
}

_STUDIES = re.compile(r"(<!-- studies -->\n).*?(<!-- end of studies -->)", re.DOTALL)
_MET = re.compile(r"(<!-- met -->\n).*?(<!-- end of met -->)", re.DOTALL)
_CLAIMS = (
    "Where the original analysis of a method gives another epsilon than what is proven here, plan, certificate, card\n"
    "and report show both, and the proven one is the one that counts:"
)
_METHODS = re.compile(r"(<!-- methods -->\n).*?(<!-- end of methods -->)", re.DOTALL)


def picture(results: Path) -> bytes:
    """The sets of `SHOWN` beside each other on a transparent ground, as a PNG of 32 greys."""
    sets = [Image.open(results / name).convert("L") for name in SHOWN]
    width = sum(one.width for one in sets) + GAP * (len(sets) - 1)
    whole, left = Image.new("LA", (width, max(one.height for one in sets)), (0, 0)), 0
    for one in sets:
        coarse = one.point([value // 8 * 8 for value in range(256)])  # looks the same, and is half as large
        whole.paste(Image.merge("LA", (coarse, Image.new("L", one.size, 255))), (left, 0))
        left += one.width + GAP
    file = io.BytesIO()
    whole.save(file, "PNG", optimize=True)
    return file.getvalue()


def gradients(results: Path) -> dict[Path, bytes]:
    """By their place: curves of what benchmarks/gradient.py measured on a card, and on a processor, by each setting."""
    usual = {"batch": 256, "width": 128, "side": 28}
    drawn = {}
    for device, end in (("cuda", ""), ("cpu", "-cpu")):
        files = _speeds(results, f"gradient-{device}-*.json")
        for setting, axis in AXES.items():
            others = {name: value for name, value in usual.items() if name != setting}
            line = [one for one in files if others.items() <= one["settings"].items()]
            line.sort(key=lambda one: one["settings"][setting])
            place = f"{line[0]['cores']} cores of a processor" if device == "cpu" else line[0]["device"]
            at = [one["settings"][setting] for one in line]
            drawn[PICTURE.with_name(f"gradients-{setting}{end}.svg")] = _milliseconds(
                line, at, title=f"Clipped gradient sum, {place}", axis=axis
            )
    return drawn


def sizes(results: Path) -> dict[Path, bytes]:
    """By its place: the curve of what benchmarks/psg.py measured on a card, against the size of the set."""
    line = sorted(_speeds(results, "psg-ipc*-cuda.json"), key=lambda one: one["per_class"])
    at, title = [one["per_class"] for one in line], f"Parts of PSG's loop, {line[0]['device']}"
    return {PICTURE.with_name("psg-size.svg"): _milliseconds(line, at, title=title, axis="images a class, ten classes")}


def _speeds(results: Path, names: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_bytes()) for path in sorted((results / "speed").glob(names))]


def _milliseconds(line: list[dict[str, Any]], at: list[int], *, title: str, axis: str) -> bytes:
    """What each contender, or part, took at these places, as an SVG."""
    curves = [
        Curve(name=name, points=tuple((one["milliseconds"][name], 0.0) for one in line), at=tuple(at))
        for name in line[0]["milliseconds"]
    ]
    return draw(curves, title=title, axis=axis, unit="ms").svg().encode()


def curves(results: Path) -> dict[Path, bytes]:
    """By their place: the curves of studies that follow a run, or one party after the other."""
    drawn = (path for study in ("continual", "psg") for path in (results / study).glob("*.svg"))
    return {PICTURE.with_name(path.name): path.read_bytes() for path in drawn}


def pictures(results: Path) -> dict[Path, bytes]:
    """Everything drawn, by its place."""
    return {PICTURE: picture(results)} | gradients(results) | sizes(results) | curves(results)


def met(results: Path) -> str:
    """How many published numbers have been measured, and met, by study and preset, as a Markdown table."""
    rows = [["study", "preset", "published", "measured", f"within {NEAR:g} points", "better", "worse"]]
    rows.append(["---"] * len(rows[0]))
    for study in STUDIES.values():
        shelf = Results(results, study)
        apart: dict[str, list[float | None]] = {}
        for cell in study.cells:
            if cell.published is not None:
                found = shelf.cell(cell)
                apart.setdefault(cell.preset, []).append(None if found is None else _apart(cell, found))
        for preset, differences in apart.items():
            measured = [one for one in differences if one is not None]
            counts = len(measured), sum(abs(one) <= NEAR for one in measured)
            more = sum(one > NEAR for one in measured), sum(one < -NEAR for one in measured)
            words = f"`{preset}`" if preset else ""
            rows.append([f"[{study.name}](#{study.name})", words, *map(str, (len(differences), *counts, *more))])
    return _lines(rows)


def _apart(cell: Cell, found: dict[str, Any]) -> float:
    """How far what was measured is from what was published, to the decimal that both are shown with."""
    assert cell.published is not None
    return round(round(found["accuracy"]["mean"], 1) - cell.published, 1)


def studies(results: Path) -> str:
    """Every study: what it measures, its command, and its cells as lines of a Markdown table."""
    return "".join(
        f"\n## {study.name}\n\n{study.what[:1].upper()}{study.what[1:]}.\n\n"
        f"```sh\nprivset study run {study.name}\n```\n\n{_cells(study, results)}\n"
        for study in STUDIES.values()
    )


def _cells(study: Study, results: Path) -> str:
    shelf = Results(results, study)
    cells = () if study.name in _MEANINGLESS else study.cells
    on_file = {cell.name: found for cell in cells if (found := shelf.cell(cell)) is not None}
    claims = any("claim" in found for found in on_file.values())
    rows = [["cell", "accuracy, %", "recipe", "published, %", "apart", "seconds a set: make + train", "device", "code"]]
    rows[0] += ["epsilon proven", "claimed"] if claims else []
    rows.append(["---"] * len(rows[0]))
    for cell in study.cells:
        found = on_file.get(cell.name)
        accuracy, recipe, *rest = [_unfinished(cell, shelf), "", "", "", ""] if found is None else _on_file(found)
        accuracy += " (with other settings)" if found is not None and shelf.is_outdated(cell) else ""
        published = "" if cell.published is None else f"{cell.published:.1f}"
        apart = "" if cell.published is None or found is None else f"{_apart(cell, found):+.1f}"
        words = [f"`{cell.name}`", accuracy, recipe, published, apart, *rest]
        rows.append([*words, *(_epsilons(found) if claims else [])])
    return _lines(rows)


def _unfinished(cell: Cell, shelf: Results) -> str:
    finished = 0 if shelf.study.name in _MEANINGLESS else len(shelf.parts(cell))
    return f"{finished} of {cell.sets} sets so far" if finished else "missing"


def _epsilons(found: dict[str, Any] | None) -> list[str]:
    if found is None or "claim" not in found:
        return ["", ""]
    return [f"{found['proven']:.3g}", f"{found['claim']['epsilon']:.3g}"]


def _on_file(found: dict[str, Any]) -> list[str]:
    accuracy, seconds = found["accuracy"], found["seconds"]
    commits = [commit[:9] + "+" * commit.endswith("+") for commit in (found["commit"] or "not known").split(", ")]
    return [
        percent(accuracy),
        found["recipe"],
        f"{seconds['generate']:.0f} + {seconds['evaluate']:.0f}",
        found["device"],
        ", ".join(commits),
    ]


def methods() -> str:
    """Every method as a line of a Markdown table."""
    rows = [["method", "makes", "how", "presets", "can measure once", "published in"]]
    rows.append(["---"] * len(rows[0]))
    for name, method in METHODS.items():
        page = ROOT / "docs" / "methods" / f"{name}.md"
        rows.append(
            [
                f"[{name}]({name}.md)" if page.exists() else name,
                method.makes,
                method.summary,
                ", ".join(f"`{preset}`" for preset in method.presets),
                "yes" if issubclass(method, MeasuringMethod) else "no: it asks as it goes",
                method.reference,
            ]
        )
    claims = [f"- `{name}`: {method.claims}.\n" for name, method in METHODS.items() if method.claims]
    return "".join([_lines(rows), "\n", _CLAIMS, "\n\n", *claims]) if claims else _lines(rows)


def filled(text: str, results: Path) -> str:
    """A document with everything of this kind in it made anew."""
    text = _STUDIES.sub(lambda place: place[1] + studies(results) + place[2], text)
    text = _MET.sub(lambda place: place[1] + met(results) + place[2], text)
    return _METHODS.sub(lambda place: place[1] + methods() + place[2], text)


def _lines(rows: list[list[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


if __name__ == "__main__":
    for place, content in pictures(ROOT / "results").items():
        place.write_bytes(content)
    for page in (ROOT / "docs" / "reproduction.md", ROOT / "docs" / "methods" / "index.md"):
        page.write_text(filled(page.read_text(encoding="utf-8"), ROOT / "results"), encoding="utf-8")
