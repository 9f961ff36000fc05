"""config.toml: what was chosen for a run, so that ``privset COMMAND --config RELEASE/config.toml`` repeats it.

Its keys are those of the command line. Everything in it is published, so it says neither where the data was, unless
that is a name everyone knows, nor what seed noise came from, nor anything about the machine. A repeated run draws fresh
noise and costs its own epsilon.

All of it but the way data was read follows from the certificate; `verify` writes it again and compares. What it says of
that way must not contradict the certificate's facts; nothing but the file says what share was held out.
"""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Mapping
from typing import Any

from privset.errors import ReleaseError
from privset.methods.plan import Plan
from privset.release.certificate import Certificate, plain
from privset.release.sections import SetContents
from privset.release.statement import Holding

FILE = "config.toml"

NONE = "none"
"""How a setting that is left to its own default is spelled: TOML has no word for it."""

READING = ("data", "size", "channels", "test_fraction", "mean", "std")
"""What may be said of how data was read."""

NAMES = frozenset({"digits", "mnist", "fashion-mnist", "cifar10"})
"""What data may be called here: the names of the catalogue, which a release otherwise knows nothing of."""

_COMMANDS: dict[Holding, str] = {
    "set": "generate",
    "statistics": "measure",
    "distilled set": "distil",
    "drawn set": "sample",
    "classifier": "generate",
}
_NEEDED = {"distil": "STATISTICS", "sample": "RELEASE, one that holds a generator"}
"""What a command needs that costs nothing."""
_DATA = "DATA on the command line, because where it is was not published"
_STAGE = "It is a party's stage: --classes, --received and --known, if it had any, are not here but in the certificate."
"""What a stage of continual learning needs besides."""


def of_plan(plan: Plan, holding: Holding, reading: Mapping[str, Any], *, stage: bool = False) -> bytes:
    """The file of a run that followed ``plan`` on data that was read like this, perhaps as a stage of several."""
    budget = {name: getattr(plan.budget, name) for name in ("epsilon", "delta", "accountant")}
    chosen = {"method": plan.method} | budget | _along(plan.snapshots)
    return _write(holding, chosen, plain(dataclasses.asdict(plan.config)), reading, stage)


def of_distillation(settings: Mapping[str, Any]) -> bytes:
    """The file of a set that was distilled with these settings, as a certificate has them."""
    return _write("distilled set", {}, settings, {})


def of_drawing(per_class: int, seed: int) -> bytes:
    """The file of a set that was drawn from a published generator."""
    return _write("drawn set", {}, {"per_class": per_class, "seed": seed}, {})


def regenerated(certificate: Certificate, content: bytes) -> bytes:
    """What the file has to say, given the certificate, and what it says itself of how data was read.

    Raises:
        ReleaseError: It is not TOML, or says of how data was read what the certificate contradicts.
    """
    try:
        found = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise ReleaseError(f"{FILE}: not TOML ({error})") from error
    reading = {name: found[_flag(name)] for name in READING if _flag(name) in found}
    _check_reading(reading, certificate)
    stated = certificate.guarantee
    chosen = {
        "method": certificate.method,
        "epsilon": stated.epsilon_budgeted,
        "delta": stated.delta,
        "accountant": stated.accountant,
        **_along(() if certificate.snapshots is None else certificate.snapshots.answers),
    }
    if certificate.holding == "drawn set" and isinstance(certificate.contents, SetContents):
        return of_drawing(certificate.contents.per_class[0], certificate.seeds["drawn"])
    distilled = certificate.holding == "distilled set"
    stage = certificate.party is not None
    return _write(certificate.holding, {} if distilled else chosen, certificate.configuration, reading, stage)


def _along(snapshots: tuple[int, ...]) -> dict[str, int]:
    """How many sets were kept along the run; left out where it is none."""
    return {"snapshots": len(snapshots)} if snapshots else {}


def _check_reading(reading: Mapping[str, Any], certificate: Certificate) -> None:
    """Raise `ReleaseError` unless this can be how data with the certificate's facts was read."""
    facts = certificate.facts
    if _COMMANDS[certificate.holding] in _NEEDED and reading:
        said = ", ".join(map(_flag, reading))
        raise ReleaseError(f"{FILE}: no data is read for a {certificate.holding}, but it says {said}")
    fits = {
        "data": lambda value: isinstance(value, str) and value in NAMES and value == facts.name,
        "size": lambda value: type(value) is int and value == facts.height == facts.width,
        "channels": lambda value: type(value) is int and value == facts.channels,
        "test_fraction": lambda value: type(value) is float and 0 < value < 1,
        "mean": lambda value: _spread(value, facts.channels) == tuple(facts.mean),
        "std": lambda value: _spread(value, facts.channels) == tuple(facts.std),
    }
    for name, value in reading.items():
        if not fits[name](value):
            raise ReleaseError(f"{FILE}: {_flag(name)} = {value!r} is not what the certificate says of the data")


def _spread(value: Any, channels: int) -> tuple[Any, ...] | None:
    """One constant for each channel, as data is read with one number or with several."""
    if not isinstance(value, list):
        return None
    return tuple(value) * channels if len(value) == 1 else tuple(value)


def _write(
    holding: Holding,
    chosen: Mapping[str, Any],
    settings: Mapping[str, Any],
    reading: Mapping[str, Any],
    stage: bool = False,
) -> bytes:
    command = "continual stage" if stage else _COMMANDS[holding]
    missing = _NEEDED.get(command, "" if "data" in reading else _DATA)
    lines = [
        f"# What this release was made with. `privset {command} --config {FILE} --out NEW` makes another one like it,",
        "# at no cost." if command in _NEEDED else "# with fresh noise and at its own cost; no seed of it is kept.",
        *([f"# It needs {missing}."] if missing else []),
        *([f"# {_STAGE}"] if stage else []),
        *(_line(name, reading[name]) for name in READING if name in reading),
        *(_line(name, value) for name, value in chosen.items()),
        "",
        *(_line(name, value) for name, value in settings.items()),
    ]
    return ("\n".join(lines) + "\n").encode()


def _line(name: str, value: Any) -> str:
    return f"{_flag(name)} = {_value(value)}"


def _flag(name: str) -> str:
    return name.replace("_", "-")


def _value(value: Any) -> str:
    """A plain value in TOML.

    >>> _value(1e-05), _value(float("inf")), _value(True), _value((0.5, 1)), _value("mnist"), _value(None)
    ('1e-05', 'inf', 'true', '[0.5, 1]', '"mnist"', '"none"')
    """
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(NONE if value is None else value)
