import contextlib
import dataclasses
import json
import math
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privset.methods.plan import Plan
from privset.release import NOT_ACCOUNTED, load
from privset.release.card import escape


def card_of(folder: Path) -> str:
    return (folder / "README.md").read_text(encoding="utf-8")


def test_card_says_what_is_promised_and_what_is_not(release: Path) -> None:
    text = card_of(release)
    certificate = load(release).certificate

    assert text.startswith('---\npretty_name: "Synthetic images in place of toy"\n')
    assert certificate.statement in text
    for limit in NOT_ACCOUNTED:
        assert limit in text
    assert "| neighbouring relation | add-or-remove-one-record |" in text
    assert "| gradient | 30 | 0.05 |" in text
    assert "privset verify FOLDER" in text
    assert "12 images of 1 x 8 x 8" in text
    assert "zero (4), one (4), two (4)" in text
    assert "Pixels are 8-bit" in text
    assert "NOT PRIVATE" not in text
    assert "license" not in text


@pytest.mark.parametrize("keep_floats", [False, True])
def test_code_in_the_card_loads_what_privset_loads(
    tmp_path: Path, plan: Plan, workshop: Any, keep_floats: bool
) -> None:
    folder = workshop.publish(tmp_path / "set", plan, workshop.set(keep_floats=keep_floats))
    expected = load(folder).set
    snippets = re.findall(r"```python\n(.*?)```", card_of(folder), flags=re.DOTALL)

    assert len(snippets) == 2
    for snippet in snippets:
        names: dict[str, Any] = {}
        with _inside(folder):
            exec(snippet, names)
        assert np.allclose(np.asarray(names["inputs"]), expected.normalised().numpy(), atol=1e-6)
        assert np.array_equal(np.asarray(names["labels"]), expected.labels.numpy())
        if keep_floats:
            assert np.array_equal(np.asarray(names["pixels"]), expected.pixels().numpy())


def test_unbounded_floats_are_called_so(tmp_path: Path, plan: Plan, workshop: Any) -> None:
    folder = workshop.publish(tmp_path / "set", plan, workshop.set(keep_floats=True))

    assert "unbounded floats in the normalised space, not 8-bit pixels" in card_of(folder)


def test_no_privacy_is_a_heading(tmp_path: Path, plan: Plan, workshop: Any) -> None:
    infinite = workshop.publish(tmp_path / "infinite", workshop.plan(math.inf))
    seeded = workshop.publish(tmp_path / "seeded", plan, noise="seeded")

    assert "\n## NOT PRIVATE: epsilon is infinite\n" in card_of(infinite)
    assert "| epsilon spent | inf |" in card_of(infinite)
    assert "\n## NOT PRIVATE: seeded noise\n" in card_of(seeded)
    assert "- not-private\n" in card_of(seeded)


def test_names_cannot_pretend_to_be_markup(tmp_path: Path, workshop: Any) -> None:
    name = 'x"\n# Perfectly private\n![a](http://b/c)'
    facts = dataclasses.replace(workshop.facts, name=name, classes=("<b>", "a|b", "été \udcff"))
    folder = workshop.publish(tmp_path / "set", workshop.plan(facts=facts))
    text = card_of(folder)

    assert "\n# Perfectly private" not in text
    assert "![a]" not in text.split("---\n", 2)[2]
    front = text.split("---\n")[1].splitlines()[0]
    assert json.loads(front.removeprefix("pretty_name: ")) == f"Synthetic images in place of {name}"
    assert r"\<b\> (4), a\|b (4), été" in text
    assert escape("plain words, e^2.5 (yes)") == "plain words, e^2.5 (yes)"


@contextlib.contextmanager
def _inside(folder: Path):
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
