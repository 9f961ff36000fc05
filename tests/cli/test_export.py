"""`privset export` as a user types it."""

import json
import shutil

import numpy as np
import pytest
from tests.release.conftest import Workshop


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    return Workshop().publish(tmp_path_factory.mktemp("export") / "set", Workshop.plan())


def test_a_release_is_exported_and_a_program_told_where(call, release, tmp_path):
    code, out, err = call("export", release, "--to", "npz", "--out", tmp_path / "arrays", "--json")
    assert code == 0, err
    told = json.loads(out)
    assert told["export"] == str(tmp_path / "arrays")
    assert told["files"] == ["README.md", "certificate.json", "ledger.jsonl", "set.npz"]
    assert told["images"] == 12
    assert told["private"] is True
    assert "differentially private" in told["statement"]
    with np.load(tmp_path / "arrays" / "set.npz") as data:
        assert len(data["x"]) == 12


def test_a_release_that_is_not_private_is_exported_with_a_warning(call, tmp_path):
    seeded = Workshop().publish(tmp_path / "seeded", Workshop.plan(), noise="seeded")
    code, out, err = call("export", seeded, "--to", "torch")
    assert code == 0
    assert "NOT PRIVATE" in err
    assert str(tmp_path / "seeded-torch") in out
    assert "NOT PRIVATE" in (tmp_path / "seeded-torch" / "README.md").read_text()


def test_a_changed_release_is_refused(call, release, tmp_path):
    shutil.copytree(release, tmp_path / "changed")
    (tmp_path / "changed" / "preview.png").write_bytes(b"")
    code, out, err = call("export", tmp_path / "changed", "--to", "png")
    assert code == 2
    assert "preview.png was changed" in err
    assert out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["changed"]
