"""Tables of settings, held to the code: what they say a preset has is what it has, and none is left out."""

import dataclasses
import itertools
import re

import pytest
from tests.docs.pages import ROOT

from privset.methods import METHODS

ELSEWHERE = {"psg-prior": "psg", "datalens": "g-pate"}
"""Pages that leave to another what is as there."""
EVERYWHERE = {"per_class", "seed"}
WORDS = {"none": None, "all": None, "true": True, "yes": True, "false": False, "no": False}
BY_EPSILON = re.compile(r"(\S+) (?:at epsilon 10 and above|above epsilon 1), else (\S+)")


def tables(name):
    """The rows of the page's first table under Knobs: by preset, the words for each setting."""
    text = (ROOT / "docs" / "methods" / f"{name}.md").read_text(encoding="utf-8")
    lines = itertools.dropwhile(lambda line: not line.startswith("|"), text.partition("\n## Knobs\n")[2].splitlines())
    first = itertools.takewhile(lambda line: line.startswith("|"), lines)
    head, _, *rest = ([cell.strip() for cell in line.strip("|").split("|")] for line in first)
    found = {}
    for place, title in enumerate(head):
        preset = METHODS[name].preset_for("cuda") if title == "default" else title.strip("`")
        if preset in METHODS[name].presets:
            found[preset] = [(re.findall(r"`(\w+)`", row[0]), row[place]) for row in rest if row[0].startswith("`")]
    return found


def value(words):
    """What the words of one setting mean; themselves, if they are more than a word."""
    words = words.strip().strip("`")
    if words in WORDS:
        return WORDS[words]
    return float(words.replace(",", "")) if re.fullmatch(r"[\d,.]+(e-?\d+)?", words) else words


def config(name, preset, epsilon):
    return METHODS[name].preset(preset, per_class=10, epsilon=epsilon)


@pytest.mark.parametrize("name", METHODS)
def test_what_a_table_says_a_preset_has_is_what_it_has(name):
    compared = 0
    for preset, rows in tables(name).items():
        for names, words in rows:
            parts = re.split(r",\s+", words) if len(names) > 1 else [words]
            parts = parts * len(names) if len(parts) == 1 else parts
            assert len(parts) == len(names), (names, words)
            for setting, part in zip(names, parts, strict=True):
                chosen = BY_EPSILON.fullmatch(part)
                for epsilon, said in ((10.0, chosen[1] if chosen else part), (1.0, chosen[2] if chosen else part)):
                    meant = value(said)
                    if isinstance(meant, str) and " " in meant:  # words that a person has to read
                        continue
                    found = getattr(config(name, preset, epsilon), setting)
                    if not chosen and epsilon < 10 and found != getattr(config(name, preset, 10.0), setting):
                        pytest.fail(f"{setting} of {preset} depends on epsilon, and the page does not say so")
                    assert found == meant, f"{setting} of {preset}: {said}, and it is {found}"
                    compared += 1
    assert compared >= 8


@pytest.mark.parametrize("name", METHODS)
def test_no_setting_is_left_out(name):
    pages = [name, *([ELSEWHERE[name]] if name in ELSEWHERE else [])]
    named = {setting for page in pages for rows in tables(page).values() for names, _ in rows for setting in names}
    settings = {field.name for field in dataclasses.fields(METHODS[name].config_type)}
    assert settings - named <= EVERYWHERE
    here = {setting for rows in tables(name).values() for names, _ in rows for setting in names}
    assert here <= settings
