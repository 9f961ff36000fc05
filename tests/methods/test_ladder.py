"""The log of experiments on the page of moments is the one on file."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOG = json.loads((ROOT / "docs" / "methods" / "moments-ladder.json").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs" / "methods" / "moments.md").read_text(encoding="utf-8")


def figure(value):
    """A number, a range of two, or nothing."""
    return " to ".join(f"{one:.1f}" for one in value) if isinstance(value, list) else f"{value:.1f}" if value else ""


def table(columns, rows):
    return "".join(f"| {' | '.join(row)} |\n" for row in (columns, ["---"] * len(columns), *rows))


def test_the_ladder_is_the_one_on_file():
    ideas = [
        [row["idea"], f"{row['epsilon']}", figure(row["accuracy"]), figure(row["beside"]), row["taken_up"] or ""]
        for row in LOG["ideas"]
    ]
    recipes = [[row["idea"], figure(row["accuracy"]), row["taken_up"] or ""] for row in LOG["recipes"]]
    assert table(["idea", "epsilon", "accuracy", "beside", "taken up in"], ideas) in PAGE
    assert table(["recipe", "accuracy", "taken up in"], recipes) in PAGE
    smoothness = [
        [
            row["data"],
            f"{row['epsilon']}",
            "yes" if row["pool"] else "no",
            row["smoothness"],
            figure(row["accuracy"]),
            row["taken_up"] or "",
        ]
        for row in LOG["smoothness"]
    ]
    columns = ["data", "epsilon", "pool", "smoothness", "accuracy", "taken up in"]
    assert table(columns, smoothness) in PAGE


def test_the_ladder_says_that_it_is_no_result():
    assert "not results" in LOG["note"]
    assert all("never on test records" in LOG[note] for note in ("note", "smoothness_note"))
    light = [[row["data"], row["idea"], figure(row["accuracy"]), row["taken_up"] or ""] for row in LOG["light"]]
    assert table(["data", "preset `light` with", "accuracy", "taken up in"], light) in PAGE
