import os

import pytest

from privset.files import as_json, write


def test_a_file_is_written_and_replaced_with_its_folder(tmp_path):
    path = tmp_path / "deep" / "file.json"
    for content in (b"one", b"other"):
        write(path, content)
        assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


def test_a_failure_leaves_what_was_there_and_nothing_else(tmp_path, monkeypatch):
    def failing(*_):
        raise OSError("full")

    path = tmp_path / "file"
    write(path, b"content")
    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(OSError, match="full"):
        write(path, b"other")
    assert path.read_bytes() == b"content"
    assert list(tmp_path.iterdir()) == [path]


def test_only_a_process_that_is_alone_removes_what_is_half_written(tmp_path):
    path, left, others = tmp_path / "file", tmp_path / ".file.deadbeef.partial", tmp_path / ".other.deadbeef.partial"
    left.write_bytes(b"half")
    others.write_bytes(b"half")
    write(path, b"content")
    assert left.exists()
    write(path, b"content", alone=True)
    assert sorted(tmp_path.iterdir()) == [others, path]


def test_json_ends_its_line_and_has_no_infinity():
    assert as_json({"a": [1]}) == b'{\n  "a": [\n    1\n  ]\n}\n'
    with pytest.raises(ValueError, match="not JSON compliant"):
        as_json(float("inf"))
