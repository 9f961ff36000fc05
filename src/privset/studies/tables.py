"""Tables of measured accuracies in the documents, written from the files in results/ and never by hand.

A document holds a place for each table, between ``<!-- results: STUDY -->`` and ``<!-- end of results -->``;
``python -m privset.studies.tables README.md docs/methods/moments.md`` fills them anew (`make tables`).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from privset.studies.catalogue import get
from privset.studies.results import Results

_PLACE = re.compile(r"(<!-- results: (\S+) -->\n).*?(<!-- end of results -->)", re.DOTALL)


def table(name: str, results: Path) -> str:
    """The cells of a study that are on file, as a Markdown table; accuracies in percent, mean and deviation."""
    study = get(name)
    found = [cell for one in study.cells if (cell := Results(results, study).cell(one)) is not None]
    recipes = list(dict.fromkeys(recipe for cell in found for recipe in cell["recipes"]))
    columns = ["data", "epsilon", "images a class", *(f"recipe `{recipe}`" for recipe in recipes), "sets x networks"]
    rows = [columns, ["---"] * len(columns)]
    for cell in found:
        measured = [cell["recipes"][recipe]["accuracy"] for recipe in recipes]
        rows.append(
            [
                cell["data"],
                str(cell["epsilon"]).removesuffix(".0"),  # "inf" is a word in JSON
                "all" if cell["per_class"] is None else str(cell["per_class"]),
                *(f"{one['mean']:.1f} ± {one['std']:.1f}" for one in measured),
                f"{len(cell['seeds']['sets'])} x {cell['networks']}",
            ]
        )
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def filled(text: str, results: Path) -> str:
    """A document with every table in it made anew."""
    return _PLACE.sub(lambda place: place[1] + table(place[2], results) + place[3], text)


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        path.write_text(filled(path.read_text(encoding="utf-8"), Path("results")), encoding="utf-8")
