import os
from pathlib import Path
from typing import Any

import pytest
from tests.report.conftest import evaluated

from privset.errors import ConfigError, DataError, ReleaseError
from privset.release import verify
from privset.report import Report, write_report, writing


def test_the_page_is_written_and_nothing_else(release: Path, tmp_path: Path) -> None:
    assert write_report([release], tmp_path / "page.html") == Report(path=tmp_path / "page.html", accuracies=False)
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    assert (tmp_path / "page.html").read_bytes().startswith(b"<!doctype html>")


def test_a_file_is_replaced_only_if_asked(release: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    out.write_text("mine")
    with pytest.raises(ConfigError, match="exists already; say --replace"):
        write_report([release], out)
    assert out.read_text() == "mine"
    write_report([release], out, replace=True)
    assert out.read_text() != "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_a_file_that_appeared_meanwhile_is_not_replaced(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: Any) -> bytes:
        (tmp_path / "page.html").write_text("mine")
        return b"page"

    monkeypatch.setattr(writing, "page", slow)
    with pytest.raises(ConfigError, match="cannot be written"):
        write_report([release], tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_a_file_system_without_hard_links_is_written_to(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", refuse)
    write_report([release], tmp_path / "page.html")
    assert (tmp_path / "page.html").read_bytes().startswith(b"<!doctype html>")


def test_what_cannot_be_finished_leaves_no_file(release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(ConfigError, match="Operation not permitted"):
        write_report([release], tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


def refuse(*_: Any) -> None:
    raise OSError(1, "Operation not permitted")


def test_where_nothing_can_be_written(release: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a folder; name the file"):
        write_report([release], tmp_path)
    with pytest.raises(ConfigError, match="is not a folder; make it"):
        write_report([release], tmp_path / "missing" / "page.html")
    with pytest.raises(ConfigError, match="none was given"):
        write_report([], tmp_path / "page.html")
    with pytest.raises(ConfigError, match="lies inside a release"):
        write_report([release], release / "page.html")
    assert verify(release).ok
    assert list(tmp_path.iterdir()) == []


def test_bad_input_leaves_no_page(release: Path, distilled: Path, written: Any, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    with pytest.raises(ReleaseError, match="not a folder"):
        write_report([release, tmp_path / "missing"], out)
    with pytest.raises(DataError, match="another set"):
        write_report([release], out, evaluations=[written(evaluated(distilled))])
    with pytest.raises(DataError, match="holds no results"):
        write_report([release], out, results=tmp_path)
    assert not out.exists()
