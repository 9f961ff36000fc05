import json
import shutil
from pathlib import Path
from typing import get_args

import pytest
from tests.release.conftest import Workshop

from privset.errors import ConfigError, ReleaseError
from privset.exports import FORMATS, Format, export
from privset.observer import Observer
from privset.release import load, verify

BESIDE = {"README.md", "certificate.json", "ledger.jsonl"}


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("to", FORMATS)
def test_every_export_carries_certificate_ledger_and_statement(release: Path, tmp_path: Path, to: Format) -> None:
    out = export(release, to=to, out=tmp_path / "deep" / "export")

    certificate = load(release).certificate
    assert out == tmp_path / "deep" / "export"
    assert names(out) >= BESIDE
    for name in ("certificate.json", "ledger.jsonl"):
        assert (out / name).read_bytes() == (release / name).read_bytes()
    card = (out / "README.md").read_text(encoding="utf-8")
    assert certificate.seal in card
    assert "license:" not in card  # it is not ours to choose
    assert ("\n## NOT PRIVATE: seeded noise\n" in card) == (not certificate.guarantee.private)
    assert ("- not-private\n" in card) == (not certificate.guarantee.private)
    for limit in certificate.not_accounted:
        assert limit in card
    assert verify(release).ok  # it was not touched
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]


def test_formats_are_those_of_the_command_line() -> None:
    assert tuple(FORMATS) == get_args(Format)


def test_by_default_it_is_written_beside_the_release(releases: dict[str, Path], tmp_path: Path) -> None:
    own = tmp_path / "release"
    shutil.copytree(releases["private"], own)
    assert export(load(own), to="npz") == tmp_path / "release-npz"
    with pytest.raises(ReleaseError, match="exists already"):
        export(own, to="npz")


def test_a_release_that_does_not_verify_is_not_exported(releases: dict[str, Path], tmp_path: Path) -> None:
    own = tmp_path / "release"
    shutil.copytree(releases["private"], own)
    document = json.loads((own / "certificate.json").read_text())
    document["guarantee"]["epsilon_spent"] /= 2
    (own / "certificate.json").write_text(json.dumps(document))
    with pytest.raises(ReleaseError, match="is not what it claims to be, so nothing is exported"):
        export(own, to="png", out=tmp_path / "export")
    assert [path.name for path in tmp_path.iterdir()] == ["release"]


def test_what_cannot_be_exported_is_refused(releases: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="exported to png, npz, parquet, torch, not to 'jpeg'"):
        export(releases["private"], to="jpeg", out=tmp_path / "x")  # type: ignore[arg-type]
    with pytest.raises(ReleaseError, match="is not a folder"):
        export(tmp_path / "nowhere", to="png")
    assert list(tmp_path.iterdir()) == []


def test_statistics_are_refused_with_what_to_do(tmp_path: Path) -> None:
    statistics = Workshop().measure(tmp_path / "statistics")
    with pytest.raises(ReleaseError, match="make a set from them with `privset distil"):
        export(statistics, to="png", out=tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_an_interrupted_export_leaves_nothing(releases: dict[str, Path], tmp_path: Path) -> None:
    class Stop(Observer):
        def step(self, count: int = 1, **values: float) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(releases["private"], to="png", out=tmp_path / "x", observer=Stop())
    assert list(tmp_path.iterdir()) == []
