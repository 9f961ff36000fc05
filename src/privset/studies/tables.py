"""Tables of what was measured in the documents, written from the files in results/ and never by hand.

A document holds a place for each table: between ``<!-- KIND: NAME -->``, with a kind that `filled` knows, and
``<!-- end of results -->``. ``python -m privset.studies.tables README.md ...`` fills them anew (`make tables`).
"""

from __future__ import annotations

import json
import math
import re
import statistics
import sys
from pathlib import Path
from typing import Any

from privset.release.statement import rounded_up
from privset.studies.catalogue import STUDIES, get
from privset.studies.results import Results, markdown, percent
from privset.studies.speeds import gradients, runs, seconds, steps
from privset.studies.study import REAL, Cell

_PLACE = re.compile(r"(<!-- (\w+): (\S+) -->\n).*?(<!-- end of results -->)", re.DOTALL)


def table(name: str, results: Path) -> str:
    """The cells of a study that are on file, as a Markdown table; accuracies in percent, mean and deviation."""
    found = _on_file(name, results)
    recipes = list(dict.fromkeys(recipe for cell in found for recipe in cell["recipes"]))
    columns = ["data", "epsilon", "images a class", *(f"recipe `{recipe}`" for recipe in recipes), "sets x networks"]
    rows = [columns, ["---"] * len(columns)]
    for cell in found:
        measured = [cell["recipes"][recipe]["accuracy"] for recipe in recipes]
        rows.append(
            [
                cell["data"],
                _epsilon(cell),
                "all" if cell["per_class"] is None else str(cell["per_class"]),
                *(percent(one) for one in measured),
                _runs(cell),
            ]
        )
    return markdown(rows)


def sizes(name: str, results: Path) -> str:
    """The same cells with one line for each data set and epsilon: accuracy by images a class."""
    found = {(cell["data"], _epsilon(cell), cell["per_class"]): cell["accuracy"] for cell in _on_file(name, results)}
    numbers = sorted({per_class for _, _, per_class in found})
    lines = sorted(dict.fromkeys((data, epsilon) for data, epsilon, _ in found), key=lambda line: float(line[1]))
    names = list(dict.fromkeys(data for data, _, _ in found))
    rows = [["data", "epsilon", *(f"{number} a class" for number in numbers)], ["---"] * (2 + len(numbers))]
    for data, epsilon in sorted(lines, key=lambda line: names.index(line[0])):
        measured = [found.get((data, epsilon, number)) for number in numbers]
        rows.append([data, epsilon, *("" if one is None else percent(one) for one in measured)])
    return markdown(rows)


def changed(name: str, results: Path) -> str:
    """A study whose cells differ in their settings: what each changes, and its accuracy."""
    rows = [["data", "changed", "accuracy", "sets x networks"], ["---"] * 4]
    study = get(name)
    for cell in study.cells:
        if (found := Results(results, study).cell(cell)) is not None:
            changes = ", ".join(_changes(cell)) or "nothing"
            changes += "" if cell.stages is None else f", with {cell.stages} parties"
            rows.append([cell.data, changes, percent(found["accuracy"]), _runs(found)])
    return markdown(rows)


def _changes(cell: Cell) -> list[str]:
    """Settings that are not the preset's."""

    def worded(value: float) -> str:
        if isinstance(value, bool):
            return "on" if value else "off"
        return f"{value:,}" if isinstance(value, int) else f"{value:g}"

    return [f"`{setting}` {worded(value)}" for setting, value in cell.settings.items()]


def compared(name: str, results: Path) -> str:
    """What was published, and what was measured here: cells of a study, or, as STUDY/METHOD, those of one method.

    Cells of which neither is known are left out, and so are columns in which all cells have the same.
    """
    rows = []
    for cell, found in _chosen(name, results):
        if (cell.published, found) != (None, None):
            measured = "not yet" if found is None else percent(found["accuracy"])
            rows.append(_described(cell) | {"measured": measured})
    return _differing(rows)


def trained(name: str, results: Path) -> str:
    """The same for networks that are trained by several recipes, with a column for each.

    Where `paper` is not among them, it is what another study measured by that recipe, on sets of the same seeds.
    """
    rows = []
    for cell, found in _chosen(name, results):
        if found is not None:
            measured = {recipe: percent(one["accuracy"]) for recipe, one in found["recipes"].items()}
            by_paper = {"paper": _elsewhere(cell, "paper", results)}
            rows.append(_described(cell) | {f"`{recipe}`": one for recipe, one in (by_paper | measured).items()})
    return _differing(rows)


def _chosen(name: str, results: Path) -> list[tuple[Cell, dict[str, Any] | None]]:
    """Cells of STUDY, or of STUDY/METHOD, and what is on file of them as they are defined now."""
    name, _, method = name.partition("/")
    shelf = Results(results, get(name))
    cells = [cell for cell in shelf.study.cells if method in ("", cell.method)]
    return [(cell, None if shelf.is_outdated(cell) else shelf.cell(cell)) for cell in cells]


def _described(cell: Cell) -> dict[str, str]:
    return {
        "data": cell.data,
        "epsilon": f"{cell.epsilon:g}",
        "preset": ", ".join([*([f"`{cell.preset}`"] if cell.preset else []), *_changes(cell)]),
        "images a class": "all" if cell.per_class is None else f"{cell.per_class:,}",
        "network": f"`{cell.classifier}`",
        "published": "" if cell.published is None else f"{cell.published:.1f}",
    }


def _differing(rows: list[dict[str, str]]) -> str:
    """A table without the columns that describe a cell and are the same in all rows, or that have nothing in any."""
    if not rows:
        return ""
    describe = ("epsilon", "preset", "images a class", "network")
    known = list(dict.fromkeys(column for row in rows for column in row))
    said = {column: {row.get(column, "not yet") for row in rows} for column in known}
    columns = [column for column in known if said[column] != {""} and (column not in describe or len(said[column]) > 1)]
    lines = ([row.get(column, "not yet") for column in columns] for row in rows)
    return markdown([columns, ["---"] * len(columns), *lines])


def beside(names: str, results: Path) -> str:
    """Studies, as ONE,OTHER,...: a line for each method, preset and size, a column for each data set and epsilon.

    Of ConvNets trained on sets, and of what else is compared with these: real records, whatever the epsilon, and
    classifiers that were trained privately. Cells that change a setting are left out.
    """
    found: dict[tuple[str, str], dict[float, dict[tuple[str, str], str]]] = {}
    for name in names.split(","):
        shelf = Results(results, get(name))
        for cell in shelf.study.cells:
            measured = None if shelf.is_outdated(cell) else shelf.cell(cell)
            if measured is not None and cell.classifier == "convnet" and not cell.settings:
                lines = found.setdefault((cell.method, cell.preset and f"`{cell.preset}`"), {})
                line = lines.setdefault(math.inf if cell.per_class is None else cell.per_class, {})
                epsilons = ("1", "10") if cell.is_real else (f"{cell.epsilon:g}",)
                line |= {(cell.data, epsilon): percent(measured["accuracy"]) for epsilon in epsilons}
    columns = [(data, epsilon) for data in ("mnist", "fashion-mnist", "cifar10") for epsilon in ("1", "10")]
    rows = [["", "preset", "images a class", *(f"{data}, {epsilon}" for data, epsilon in columns)]]
    rows.append(["---"] * len(rows[0]))
    for (method, preset), lines in found.items():
        for size, line in sorted(lines.items()):
            images = f"{size:,}" if math.isfinite(size) else "all" if method == REAL else ""
            if line.keys() & set(columns):
                rows.append([method, preset, images, *(line.get(column, "") for column in columns)])
    return markdown(rows)


def claimed(names: str, results: Path) -> str:
    """Of studies, as ONE,OTHER,...: what was published, and what is measured with that noise and with what is proven.

    A line for each cell with the published noise (preset ``paper``), beside the one whose noise is for that epsilon as
    proven (``standard``): they have the same published value. Of ConvNets alone.
    """
    rows = []
    for name in names.split(","):
        shelf = Results(results, get(name))
        cells = [cell for cell in shelf.study.cells if cell.classifier == "convnet" and cell.published is not None]
        for proven in (cell for cell in cells if cell.preset == "standard" and not cell.settings):
            like = (proven.method, proven.data, proven.per_class, proven.published)
            noises = [
                cell
                for cell in cells
                if cell.preset == "paper" and (cell.method, cell.data, cell.per_class, cell.published) == like
            ]
            common = set.intersection(*({*_changes(cell)} for cell in noises)) if noises else set()
            for noise in noises:
                found, ours = (None if shelf.is_outdated(cell) else shelf.cell(cell) for cell in (noise, proven))
                unlike = (change for change in _changes(noise) if change not in common)
                rows.append(
                    {
                        "method": ", ".join([f"`{noise.method}`", *unlike]),
                        "data": noise.data,
                        "images a class": f"{noise.per_class:,}",
                        "epsilon claimed": f"{proven.epsilon:g}",
                        "published": f"{noise.published:.1f}",
                        "by the published noise": "not yet" if found is None else percent(found["accuracy"]),
                        "proven for that": "" if found is None else rounded_up(float(found["proven"])),
                        "by noise proven for what is claimed": "not yet" if ours is None else percent(ours["accuracy"]),
                    }
                )
    return _differing(rows)


def stages(name: str, results: Path) -> str:
    """Cells of parties that publish one after the other: accuracy after each stage, and of all classes at once."""
    study = get(name)
    shelf = Results(results, study)
    on_file = [(cell, found) for cell in study.cells if (found := shelf.cell(cell)) is not None]
    most = max((len(found["parties"]) for _, found in on_file), default=0)
    columns = [*(f"stage {number + 1}" for number in range(most)), "forgotten", "all classes at once"]
    rows = [["data", "epsilon", "method", "preset", *columns], ["---"] * (4 + len(columns))]
    for cell, found in on_file:
        along = found["recipes"][found["recipe"]]["stages"]
        accuracies = [percent(one["accuracy"]) for one in along] + [""] * (most - len(along))
        rows.append(
            [
                *(cell.data, _epsilon(found), f"`{cell.method}`", f"`{cell.preset}`"),
                *(*accuracies, percent(along[-1]["forgetting"]), _elsewhere(cell, found["recipe"], results)),
            ]
        )
    return markdown(rows)


def _elsewhere(cell: Cell, recipe: str, results: Path) -> str:
    """What another study measured by this recipe in the same way, however many networks, with one party; or nothing."""
    ignored = ("stages", "networks")
    wanted = {name: value for name, value in cell.definition().items() if name not in ignored}
    for study in STUDIES.values():
        for other in study.cells:
            if other.stages is None and not other.held_out and wanted.items() <= other.definition().items():
                found = (Results(results, study).cell(other) or {"recipes": {}})["recipes"].get(recipe)
                return "not yet" if found is None else percent(found["accuracy"])
    return ""


def replay(data: str, results: Path) -> str:
    """What benchmarks/replay.py measured on a data set: accuracies of random networks, and differences from them."""
    rows = [["epsilon", "random", "all trained", "half of them trained", "seeds"], ["---"] * 5]
    files = [json.loads(path.read_bytes()) for path in (results / "replay").glob(f"{data}-eps*.json")]
    for found in sorted(files, key=lambda one: one["settings"]["epsilon"]):
        base = statistics.fmean(run["accuracy"]["random"] for run in found["runs"])
        apart = [found["against_random"][variant] for variant in ("trained", "half")]
        differences = [f"{one['mean']:+.1f} ± {one['standard_error']:.1f}" for one in apart]
        rows.append([f"{found['settings']['epsilon']:g}", f"{base:.1f}", *differences, str(len(found["runs"]))])
    return markdown(rows)


def _on_file(name: str, results: Path) -> list[dict[str, Any]]:
    study = get(name)
    return [cell for one in study.cells if (cell := Results(results, study).cell(one)) is not None]


def _runs(found: dict[str, Any]) -> str:
    return f"{len(found['seeds']['sets'])} x {found['networks']}"


def _epsilon(cell: dict[str, Any]) -> str:
    return str(cell["epsilon"]).removesuffix(".0")  # "inf" is a word in JSON


def filled(text: str, results: Path) -> str:
    """A document with every table in it made anew."""
    kinds = {
        "results": table,
        "sizes": sizes,
        "changed": changed,
        "compared": compared,
        "trained": trained,
        "beside": beside,
        "claimed": claimed,
        "stages": stages,
        "replay": replay,
        "seconds": seconds,
        "gradients": gradients,
        "steps": steps,
        "runs": runs,
    }
    return _PLACE.sub(lambda place: place[1] + kinds[place[2]](place[3], results) + place[4], text)


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        path.write_text(filled(path.read_text(encoding="utf-8"), Path("results")), encoding="utf-8")
