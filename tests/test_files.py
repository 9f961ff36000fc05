import os

import pytest

from privset.files import as_json, litter, unwritable, write


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


def test_where_nothing_can_be_put_is_said_and_nothing_is_made(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_bytes(b"")
    assert unwritable(tmp_path / "to" / "be" / "made") is None
    assert unwritable(file / "in" / "it") == f"{file} is not a folder"
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert unwritable(tmp_path / "new") == f"{tmp_path} cannot be written to"
    assert list(tmp_path.iterdir()) == [file]


def test_what_file_managers_leave_is_a_file_of_certain_names(tmp_path):
    for name in (".DS_Store", "Thumbs.db", "notes.txt"):
        (tmp_path / name).write_bytes(b"")
        assert litter(tmp_path / name) is (name != "notes.txt")
    (tmp_path / "desktop.ini").symlink_to(tmp_path / "notes.txt")
    (tmp_path / "deep" / ".DS_Store").mkdir(parents=True)
    assert not litter(tmp_path / "desktop.ini")
    assert not litter(tmp_path / "deep" / ".DS_Store")


def test_json_ends_its_line_and_has_no_infinity():
    assert as_json({"a": [1]}) == b'{\n  "a": [\n    1\n  ]\n}\n'
    with pytest.raises(ValueError, match="not JSON compliant"):
        as_json(float("inf"))
