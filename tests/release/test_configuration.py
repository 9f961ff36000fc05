import dataclasses
import tomllib
from pathlib import Path
from typing import Any

import pytest

from privset.data.named import catalogue
from privset.errors import ReleaseError
from privset.methods.plan import Plan
from privset.release import certify, save, verify
from privset.release.certificate import sha256
from privset.release.configuration import NAMES, of_distillation, of_plan, regenerated

READING = {"size": 8, "channels": 1, "test_fraction": 0.2, "mean": (0.25,), "std": (0.5,)}


@pytest.fixture
def configured(tmp_path: Path, plan: Plan, workshop: Any) -> Path:
    """A release that has a configuration."""
    made, ledger = workshop.set(), workshop.ledger(tmp_path / "ledger", plan)
    text = of_plan(plan, "set", READING)
    certificate = certify(plan, made, "system", ledger=ledger, seconds=1, config_file=text)
    return save(tmp_path / "release", made, certificate, ledger, text)


def replace(release: Path, workshop: Any, old: str, new: str) -> None:
    """Edit the configuration as a careful forger would."""
    path = release / "config.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    workshop.forge(release, lambda document: document["files"].update({"config.toml": sha256(path.read_bytes())}))


def failures(release: Path) -> list[str]:
    return [f"{check.name}: {check.detail}" for check in verify(release).failures]


def test_it_is_verified_with_the_release(configured: Path) -> None:
    outcome = verify(configured)

    assert outcome.ok
    assert "configuration" in [check.name for check in outcome.checks]
    found = tomllib.loads((configured / "config.toml").read_text())
    assert found["epsilon"] == 0.5
    assert found["size"] == 8
    assert found["mean"] == [0.25]
    assert found["batch-size"] == 50
    assert found["noise-multiplier"] == "none"


def test_releases_without_one_still_verify(release: Path) -> None:
    assert verify(release).ok


def test_a_changed_or_missing_one_is_noticed(configured: Path) -> None:
    path = configured / "config.toml"
    path.write_text(path.read_text() + "\n")
    assert failures(configured) == ["configuration: config.toml was changed: its digest is not the recorded one"]
    path.unlink()
    assert "files: missing: config.toml" in failures(configured)


def test_one_that_no_certificate_knows_is_noticed(release: Path) -> None:
    (release / "config.toml").write_text("epsilon = 1\n")
    assert failures(release) == ["files: not part of a release, and vouched for by nothing: config.toml; take it out"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("epsilon = 0.5", "epsilon = 0.1"),
        ("batch-size = 50", "batch-size = 51"),
        ('method = "psg"', 'method = "moments"'),
        ("# What this", "# What that"),
        ("per-class = 4\n", "per-class = 4\nout = 'x'\n"),
    ],
)
def test_one_that_says_something_else_than_the_certificate_is_noticed(
    configured: Path, workshop: Any, old: str, new: str
) -> None:
    replace(configured, workshop, old, new)
    assert failures(configured) == ["configuration: the configuration is not what contents and certificate give"]


def test_one_that_is_not_toml_is_noticed(configured: Path, workshop: Any) -> None:
    replace(configured, workshop, "epsilon = 0.5", "epsilon =")
    (failure,) = failures(configured)
    assert "not TOML" in failure


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("size = 8", "size = 16"),
        ("size = 8", "size = 8.0"),
        ("channels = 1", "channels = 3"),
        ("mean = [0.25]", "mean = [0.5]"),
        ("mean = [0.25]", "mean = [0.25, 0.25, 0.25]"),
        ("mean = [0.25]", "mean = 0.25"),
        ("std = [0.5]", "std = [0.25]"),
        ("test-fraction = 0.2", "test-fraction = 1.5"),
        ("test-fraction = 0.2", 'test-fraction = "/ward/3"'),
        ("size = 8", 'data = "/home/ward/scans"\nsize = 8'),
        ("size = 8", 'data = "toy"\nsize = 8'),  # the name of these data, but of no catalogue
        ("size = 8", 'data = "mnist"\nsize = 8'),  # of the catalogue, but not of these data
        ("size = 8", 'data = ["mnist"]\nsize = 8'),
    ],
)
def test_how_data_was_read_must_fit_the_facts(configured: Path, workshop: Any, old: str, new: str) -> None:
    replace(configured, workshop, old, new)
    (failure,) = failures(configured)
    assert "is not what the certificate says of the data" in failure


def test_the_share_held_out_is_taken_from_the_file(configured: Path, workshop: Any) -> None:
    replace(configured, workshop, "test-fraction = 0.2", "test-fraction = 0.3")  # nothing else says what it was
    assert failures(configured) == []


def test_one_constant_stands_for_every_channel_and_a_name_for_its_data(tmp_path: Path, workshop: Any) -> None:
    facts = dataclasses.replace(workshop.facts, name="cifar10", channels=3, mean=(0.5,) * 3, std=(0.25,) * 3)
    plan, made = workshop.plan(facts=facts), workshop.set(facts)
    ledger = workshop.ledger(tmp_path / "ledger", plan)
    text = of_plan(plan, "set", {"data": "cifar10", "mean": (0.5,), "std": (0.25,) * 3})
    certificate = certify(plan, made, "system", ledger=ledger, seconds=1, config_file=text)
    assert failures(save(tmp_path / "release", made, certificate, ledger, text)) == []


def test_the_names_are_those_of_the_catalogue() -> None:
    assert set(catalogue.SETS) == NAMES


def test_distilled_sets_have_settings_alone(distilled: Path) -> None:
    certificate = verify(distilled).certificate
    assert certificate is not None
    text = of_distillation(certificate.configuration)
    assert regenerated(certificate, text) == text
    with pytest.raises(ReleaseError, match="no data is read for a distilled set"):
        regenerated(certificate, b"size = 8\n" + text)
    assert tomllib.loads(text.decode()).keys() == {name.replace("_", "-") for name in certificate.configuration}
