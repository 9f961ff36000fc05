"""Distils sets from statistics that were published: post-processing of what was paid for, so it costs nothing."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from privset.errors import ConfigError
from privset.methods import Execution, MethodConfig
from privset.methods.settings import require_room
from privset.observer import Observer
from privset.release import configuration
from privset.release.artefact import Release, StatisticsRelease
from privset.release.certificate import LEDGER_FILE, plain
from privset.release.issuing import certify_distilled
from privset.release.loading import load, load_statistics
from privset.release.saving import save
from privset.release.software import deciding_versions
from privset.release.synthetic import SyntheticSet
from privset.release.unfinished import Unfinished, check_free
from privset.release.verification import require_verified


def distil(
    source: StatisticsRelease | str | Path,
    *,
    out: str | Path,
    execution: Execution | None = None,
    observer: Observer | None = None,
    **settings: Any,
) -> Release:
    """Make a synthetic set from published statistics: needs no data, and costs nothing.

    The set carries the guarantee of its statistics, and it is the same one: all sets distilled from the same
    statistics, and the statistics, together cost their one epsilon.

    Args:
        source: The statistics, or the folder that `measure` wrote. Either way what is in the folder is verified, and
            used.
        out: Folder to write; it must not exist. The same call takes a killed run up again.
        execution: The device.
        observer: Told about progress.
        settings: Settings of the method that are to differ from the recorded ones, such as ``per_class`` and
            ``seed``; those that were measured with cannot.

    Raises:
        PrivsetError: The statistics do not verify, or cannot be distilled with these settings.
    """
    out, started = Path(out), time.perf_counter()
    check_free(out, resumable=True)
    folder = source.path if isinstance(source, StatisticsRelease) else Path(source)
    require_verified(folder, "made from it")
    source = load_statistics(folder)
    measured, certificate = source.measured(), source.certificate
    _check_kinds(type(measured.config), settings)
    method = source.method(**settings)
    require_room(measured.facts, method.config.per_class)
    identity = {
        "command": "distil",
        "statistics": certificate.seal,
        "settings": plain(dataclasses.asdict(method.config)),
        "software": deciding_versions(),
    }
    with Unfinished(out, identity) as work:
        if work.taken_up and observer is not None:
            observer.going_on(work.folder)
        synthesis = method.distil(measured, execution=execution, observer=observer, checkpoint=work.checkpoint)
        made = SyntheticSet.from_synthesis(synthesis, measured.facts)
        ledger = source.path / LEDGER_FILE if LEDGER_FILE in certificate.files else None
        config_file = configuration.of_distillation(identity["settings"])
        seconds = time.perf_counter() - started
        issued = certify_distilled(
            certificate, method.config, made, ledger=ledger, seconds=seconds, config_file=config_file
        )
        save(out, made, issued, ledger, config_file)
    return load(out)


def _check_kinds(config_type: type[MethodConfig], settings: dict[str, Any]) -> None:
    """Refuse a setting that is not of its kind, such as text for a number, before it is compared with anything."""
    kinds = get_type_hints(config_type)
    for name in settings.keys() & kinds.keys():
        try:
            TypeAdapter(kinds[name]).validate_python(settings[name], strict=True)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]["msg"]
            raise ConfigError(f"{name.replace('_', '-')} cannot be {settings[name]!r}: {problem}") from error
