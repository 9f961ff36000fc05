"""The Python of README and guide is run, and its commands are held against the command line."""

import contextlib
import dataclasses
import importlib.util
import inspect
import io
import re
import shlex
import sys
import types

import pytest
import tyro
from tests import conftest
from tests.contract import test_measuring, test_methods
from tests.docs.pages import GUIDE, PAGES, ROOT, blocks, name_of

import privset
from privset.cli import config
from privset.cli.main import COMMANDS, main

FREE = {"plan", "methods", "datasets", "study"}
"""Commands whose output depends on nothing but the code; `study run` is not among them."""

OTHERS = {"make", "pip", "eval"}
"""What else a reader may be told to type."""


def run(page, monkeypatch, tmp_path):
    """Run a page from top to bottom in an empty folder; what a block prints is compared with what the page says."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    module = types.ModuleType(f"page_{page.stem.replace('-', '_').lower()}")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # data classes look for the module they are made in
    for block in blocks(page):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            if block.kind == "python":
                lines = "\n" * (block.line - 1) + block.text
                exec(compile(lines, str(page), "exec"), module.__dict__)
                expected = block.output
            elif block.kind == "console" and (command := command_of(block))[0] in FREE:
                assert main(command) == 0
                expected = block.text.split("\n", 1)[1]
            else:
                continue
        if expected is not None:
            assert printed.getvalue().rstrip() == expected.rstrip(), f"{name_of(page)}, line {block.line}"


def command_of(block):
    """The one command of a block that shows what it prints."""
    first, *rest = block.text.splitlines()
    assert first.startswith("$ privset ")
    assert rest
    assert not any(line.startswith("$ ") for line in rest), "one command a block, so that its output is known"
    return shlex.split(first)[2:]


@pytest.mark.parametrize("page", GUIDE, ids=name_of)
def test_the_guide_does_what_it_says(page, monkeypatch, tmp_path):
    run(page, monkeypatch, tmp_path)


def test_the_example_of_the_readme_runs(monkeypatch, tmp_path):
    light = privset.MomentsConfig.light
    # The same code with fewer steps: as it stands it takes a minute.
    monkeypatch.setattr(
        privset.MomentsConfig, "light", lambda **given: dataclasses.replace(light(**given), networks=3, steps=20)
    )
    run(ROOT / "README.md", monkeypatch, tmp_path)
    assert (tmp_path / "release" / "certificate.json").is_file()


def test_the_method_of_the_guide_keeps_every_promise_of_a_method(monkeypatch, tmp_path):
    page = ROOT / "docs" / "guide" / "adding-a-method.md"
    file = tmp_path / "class_means.py"
    file.write_text(next(block.text for block in blocks(page) if block.kind == "python"), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("class_means", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "class_means", module)
    spec.loader.exec_module(module)
    monkeypatch.setitem(privset.METHODS, "class-means", module.ClassMeans)
    monkeypatch.setitem(conftest.TINY, "class-means", module.ClassMeansConfig(per_class=2))

    method = module.ClassMeans(module.ClassMeansConfig(per_class=2))
    given = {
        "tiny_method": method,
        "method": method,
        "facts": conftest.facts_for(40),
        "name": "class-means",
        "tmp_path": tmp_path,
        "stop": 0,
    }
    kept = []
    for promises in (test_methods, test_measuring):
        for name, promise in inspect.getmembers(promises, inspect.isfunction):
            if name.startswith("test_") and inspect.signature(promise).parameters:  # others are about the registry
                with pytest.MonkeyPatch.context() as patch:
                    known = given | {"monkeypatch": patch}
                    promise(**{needed: known[needed] for needed in inspect.signature(promise).parameters})
                kept.append(name)
    assert len(kept) >= 17


class Parsed(BaseException):
    """A command line was understood; nothing of it is run."""


def command_lines(page):
    """Every line of a shell that a page shows, as words, without comments, redirections and what is printed."""
    for block in blocks(page):
        if block.kind not in ("sh", "console"):
            continue
        lines = re.sub(r"\\\n\s*", "", block.text).splitlines()
        if block.kind == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        for line in lines:
            words = shlex.split(line, comments=True)
            if words:
                yield words[: words.index(">")] if ">" in words else words


LINES = [(name_of(page), words) for page in PAGES for words in command_lines(page)]


@pytest.mark.parametrize(("page", "words"), LINES, ids=[f"{page}: {shlex.join(words)}" for page, words in LINES])
def test_every_command_that_a_page_shows_exists(page, words, monkeypatch):
    if words[0] == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        assert set(words[1:]) <= set(targets)
        return
    if words[0] != "privset":
        assert words[0] in OTHERS
        return
    really = tyro.cli

    def understood(*given, **options):
        really(*given, **options)
        raise Parsed

    monkeypatch.setattr(tyro, "cli", understood)
    monkeypatch.setattr(config, "_read", lambda _: {"epsilon": 1.0, "data": "digits"})  # there is no such file here
    assert words[1] in COMMANDS
    if words[-1] == "--help":
        with pytest.raises(SystemExit) as ended:
            main(words[1:])
        assert ended.value.code == 0
    else:
        with pytest.raises(Parsed):
            main(words[1:])


def test_a_command_with_an_option_that_does_not_exist_would_be_noticed(monkeypatch):
    with pytest.raises(SystemExit) as ended:
        main(["verify", "release", "--no-such-option"])
    assert ended.value.code == 2


def test_every_command_is_shown_on_some_page():
    shown = {words[1] for _, words in LINES if words[0] == "privset"}
    shown |= set(re.findall(r"\$\(privset (\w+)", " ".join(word for _, words in LINES for word in words)))
    assert shown == set(COMMANDS)
