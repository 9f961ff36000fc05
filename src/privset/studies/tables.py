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

from privset.studies.catalogue import STUDIES, get
from privset.studies.results import Results, percent
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
    return _markdown(rows)


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
    return _markdown(rows)


def changed(name: str, results: Path) -> str:
    """A study whose cells differ in their settings: what each changes, and its accuracy."""
    rows = [["data", "changed", "accuracy", "sets x networks"], ["---"] * 4]
    study = get(name)
    for cell in study.cells:
        if (found := Results(results, study).cell(cell)) is not None:
            changes = ", ".join(_changes(cell)) or "nothing"
            changes += "" if cell.stages is None else f", with {cell.stages} parties"
            rows.append([cell.data, changes, percent(found["accuracy"]), _runs(found)])
    return _markdown(rows)


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
    return _markdown([columns, ["---"] * len(columns), *lines])


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
    return _markdown(rows)


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
    return _markdown(rows)


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
    return _markdown(rows)


def seconds(kind: str, results: Path) -> str:
    """The commands of benchmarks/KIND.py that are on file, as a Markdown table: how long each took, what came out.

    Seconds of training on what came out, where these were counted, are added to it with a plus.
    """
    columns = ["command", "on", "seconds", "accuracy"]
    rows = [columns, ["---"] * len(columns)]
    for path in sorted((results / "speed").glob(f"{kind}-*.json")):
        found = json.loads(path.read_bytes())
        machine = f"{found['cores']} CPU cores" if found["device"] == "cpu" else found["device"]
        accuracy = percent(found["accuracy"]) if "accuracy" in found else ""
        took = f"{found['value']:.0f}" + (f" + {found['training']['seconds']:.0f}" if "training" in found else "")
        rows.append([f"`{found['what']}`", machine, took, accuracy])
    return _markdown(rows)


def gradients(device: str, results: Path) -> str:
    """What benchmarks/gradient.py measured on a device: milliseconds of a clipped gradient sum, ours and others'."""
    files = [json.loads(path.read_bytes()) for path in (results / "speed").glob(f"gradient-{device}-*.json")]
    names = list(dict.fromkeys(name for found in files for name in found["milliseconds"]))
    rows = [["records", "image", "width", *names], ["---"] * (3 + len(names))]
    for found in sorted(files, key=lambda one: [one["settings"][name] for name in ("side", "width", "batch")]):
        setting, measured = found["settings"], found["milliseconds"]
        image = f"{setting['side']}x{setting['side']}"
        times = [_milliseconds(measured[name]) if name in measured else "" for name in names]
        rows.append([str(setting["batch"]), image, str(setting["width"]), *times])
    return _markdown(rows)


def steps(device: str, results: Path) -> str:
    """What benchmarks/psg.py measured on a device: milliseconds of each part of PSG's loop, minutes of a whole run."""
    parts = ("gradient", "matching", "update")
    rows = [["images a class", *parts, "steps", "updates", "so a whole run", "memory", "code"], ["---"] * 9]
    files = [json.loads(path.read_bytes()) for path in (results / "speed").glob(f"psg-*-{device}.json")]
    for found in sorted(files, key=lambda one: one["per_class"]):
        hours = found["hours"]["in one go"] or found["hours"]["sum of parts"]
        rows.append(
            [
                str(found["per_class"]),
                *(_milliseconds(found["milliseconds"][name]) for name in parts),
                *(f"{found['steps'][name]:,}" for name in ("matching", "updates")),
                f"{60 * hours:.0f} min" if hours > 1 / 30 else f"{3600 * hours:.0f} s",
                f"{found['peak_memory_mib'] / 1024:.1f} GiB",
                found["commit"][:9],
            ]
        )
    return _markdown(rows)


def runs(name: str, results: Path) -> str:
    """What benchmarks/methods.py counted on a device: minutes of a whole run of each method, and its memory.

    Steps, and how many of them were timed, are those of one phase after the other.
    As DEVICE/METHOD those of one method.
    """
    device, _, method = name.partition("/")
    columns = ["method", "preset", "epsilon", "images a class", "steps", "timed", "a run", "memory", "code"]
    rows = [columns, ["---"] * len(columns)]
    files = [json.loads(path.read_bytes()) for path in (results / "speed").glob(f"method-*-{device}.json")]
    files = [found for found in files if method in ("", found["method"])]
    for found in sorted(files, key=lambda one: (one["method"], one["preset"], one["epsilon"], one["per_class"])):
        steps, timed = (
            " + ".join(f"{phase[what]:,}" for phase in found["phases"].values()) for what in ("steps", "timed")
        )
        rows.append(
            [
                f"`{found['method']}`",
                f"`{found['preset']}`",
                f"{found['epsilon']:g}",
                f"{found['per_class']:,}",
                steps,
                timed,
                _duration(found["value"]),
                f"{found['peak_memory_mib'] / 1024:.1f} GiB",
                found["commit"][:9],
            ]
        )
    return _markdown(rows)


def _on_file(name: str, results: Path) -> list[dict[str, Any]]:
    study = get(name)
    return [cell for one in study.cells if (cell := Results(results, study).cell(one)) is not None]


def _runs(found: dict[str, Any]) -> str:
    return f"{len(found['seeds']['sets'])} x {found['networks']}"


def _duration(minutes: float) -> str:
    """In the largest unit of which there are two.

    >>> _duration(8.06), _duration(250), _duration(7868)
    ('8.1 min', '4.2 hours', '5.5 days')
    """
    for unit, length in (("days", 1440), ("hours", 60)):
        if minutes >= 2 * length:
            return f"{minutes / length:.1f} {unit}"
    return f"{minutes:.1f} min"


def _milliseconds(value: float) -> str:
    return f"{value:.2f} ms" if value < 100 else f"{value:,.0f} ms"


def _epsilon(cell: dict[str, Any]) -> str:
    return str(cell["epsilon"]).removesuffix(".0")  # "inf" is a word in JSON


def _markdown(rows: list[list[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def filled(text: str, results: Path) -> str:
    """A document with every table in it made anew."""
    kinds = {
        "results": table,
        "sizes": sizes,
        "changed": changed,
        "compared": compared,
        "trained": trained,
        "beside": beside,
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
