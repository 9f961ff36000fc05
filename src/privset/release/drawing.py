"""Draws sets from a generator that was published: post-processing of what was paid for, so it costs nothing."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

from privset.errors import ConfigError, ReleaseError
from privset.methods import METHODS, Execution, Method, SetConfig
from privset.methods.settings import require_room
from privset.release import configuration
from privset.release.artefact import Release
from privset.release.certificate import LEDGER_FILE, Certificate
from privset.release.issuing import certify_drawn
from privset.release.loading import load
from privset.release.saving import save
from privset.release.synthetic import SyntheticSet
from privset.release.unfinished import check_free
from privset.release.verification import require_verified


def sample(
    source: Release | str | Path,
    *,
    per_class: int,
    out: str | Path,
    seed: int = 0,
    execution: Execution | None = None,
) -> Release:
    """Draw a new synthetic set from the generator that was published with one: needs no data, and costs nothing.

    The set carries the guarantee of the release it was drawn from, and it is the same one: that release, and all sets
    drawn from its generator, together cost their one epsilon.

    Args:
        source: The release, or its folder. Either way what is in the folder is verified, and used.
        per_class: Images for each class.
        out: Folder to write; it must not exist.
        seed: Of the codes that the generator makes images of; another one gives other images.
        execution: The device.

    Raises:
        PrivsetError: The release does not verify, holds no generator, or nothing can be written to ``out``.
    """
    out, started = Path(out), time.perf_counter()
    _check(per_class, seed)
    check_free(out)
    folder = source.path if isinstance(source, Release) else Path(source)
    require_verified(folder, "drawn from it")
    source = load(folder)
    if source.generator is None:
        raise ReleaseError(_without_generator(folder, source.certificate))
    require_room(source.set.facts, per_class)
    drawn = source.generator.draw(per_class=per_class, seed=seed, device=(execution or Execution()).device)
    made = SyntheticSet.from_synthesis(
        dataclasses.replace(drawn, keep_floats=source.set.keeps_floats), source.set.facts
    )
    certificate, config_file = source.certificate, configuration.of_drawing(per_class, seed)
    ledger = source.path / LEDGER_FILE if LEDGER_FILE in certificate.files else None
    seconds = time.perf_counter() - started
    issued = certify_drawn(certificate, seed, made, ledger=ledger, seconds=seconds, config_file=config_file)
    save(out, made, issued, ledger, config_file)
    return load(out)


def _check(per_class: int, seed: int) -> None:
    """Refuse what is no number of images or no seed, before anything is read."""
    for name, value in (("per-class", per_class), ("seed", seed)):
        if type(value) is not int:
            raise ConfigError(f"{name} must be a whole number, not {value!r}")
    SetConfig(per_class=per_class, seed=seed)


def _without_generator(folder: Path, certificate: Certificate) -> str:
    """What to do where there is none to draw from."""
    if certificate.drawn is not None:
        return (
            f"{folder} was itself drawn from a generator, and does not hold it; draw from the release that does, whose "
            f"certificate has the seal {certificate.drawn.certificate}"
        )
    if certificate.configuration.get("publish_generator") is False:
        return (
            f"{folder} holds no generator, so no more images can be drawn from it: it was made with "
            "--no-publish-generator, and its generator was not kept"
        )
    able = ", ".join(name for name, method in METHODS.items() if "publish_generator" in _settings(method))
    return (
        f"{folder} holds no generator, so no more images can be drawn from it; give a release that was made by a "
        f"method that publishes one ({able})"
    )


def _settings(method: type[Method[Any]]) -> set[str]:
    return {field.name for field in dataclasses.fields(method.config_type)}
