import subprocess

from privset.studies import origin


def test_the_commit_is_that_of_the_source_or_none(tmp_path, monkeypatch):
    def git(*words):
        name = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        subprocess.run(["git", *name, *words], cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.delenv("PRIVSET_COMMIT", raising=False)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.setattr(origin, "PACKAGE", tmp_path)
    assert origin.commit() is None
    git("init")
    (tmp_path / "__init__.py").touch()
    (tmp_path / "other.py").touch()
    git("add", "other.py")
    git("commit", "-m", "x")
    assert origin.commit() is None  # someone else's repository
    git("add", "__init__.py")
    git("commit", "-m", "y")
    clean = origin.commit()
    assert clean is not None
    assert len(clean) == 40
    (tmp_path / "new.py").touch()
    assert origin.commit() == clean + "+"
    monkeypatch.setenv("PRIVSET_COMMIT", "")
    assert origin.commit() == clean + "+"
    monkeypatch.setenv("PRIVSET_COMMIT", "told")  # of a copy that was committed elsewhere
    assert origin.commit() == "told"
    monkeypatch.setattr(origin, "PACKAGE", tmp_path.parent)
    assert origin.commit() == "told"
