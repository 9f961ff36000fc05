"""`privset distil`."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Generic

import tyro

from privset.cli import console
from privset.cli.arguments import DEFAULT_PER_CLASS, Config, parse
from privset.cli.config import ConfigFile
from privset.cli.generate import show_made
from privset.cli.tensorboard import require_tensorboard
from privset.cli.watching import watched
from privset.methods import DEFAULT, Execution, MethodConfig, get
from privset.release import distil as distil_set
from privset.release import load_statistics
from privset.release.certificate import FILE as CERTIFICATE_FILE
from privset.release.software import versions
from privset.release.unfinished import check_free


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistilArguments(Generic[Config]):
    """A synthetic set from published statistics: needs no data, costs nothing.

    Settings start from those the statistics were measured with; what they were measured with cannot be changed.
    """

    statistics: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="STATISTICS")]]
    """The folder that `privset measure` wrote."""
    out: Path
    """Folder to write the release to; it must not exist."""
    settings: tyro.conf.OmitArgPrefixes[Config]
    device: str = "cpu"
    """cpu, cuda or cuda:N."""
    tensorboard: Path | None = None
    """Folder to write curves and previews to as they form, for TensorBoard (pip install 'privset[tensorboard]')."""
    config: Path | None = None
    """TOML file with any of these options, such as the config.toml of a set; the command line wins over it."""
    json: bool = False
    """Print one JSON object."""


def distil(arguments: Sequence[str]) -> int:
    """Make a synthetic set from statistics, without data and for free."""
    file = ConfigFile.named_in(arguments)
    found = _statistics([*arguments, *([file.get("statistics", "")] if "statistics" in file.values else [])])
    source = None if found is None else load_statistics(found)
    settings = _defaults() if source is None else source.measured().config
    default = DistilArguments(statistics=tyro.MISSING, out=tyro.MISSING, settings=settings)
    default = file.apply(default, "privset distil")
    parsed = parse(DistilArguments[type(settings)], arguments, "privset distil", default=default)
    source = load_statistics(parsed.statistics) if source is None or found != parsed.statistics else source
    execution = Execution(device=parsed.device)
    theirs, ours = source.certificate.software.get("torch"), versions()["torch"]
    if theirs is not None and theirs.split("+")[0] != ours.split("+")[0]:
        console.warn(
            f"These statistics were measured with torch {theirs}, and this is {ours}: should it make other networks "
            "from the same seed, the set will be of no use. If so, distil with that version."
        )
    if parsed.tensorboard is not None:
        require_tensorboard()
    check_free(parsed.out, resumable=True)
    facts, settings = source.certificate.public_facts(), dataclasses.asdict(parsed.settings)
    with console.Bars() as bars, watched(bars, parsed.out, facts, parsed.tensorboard) as observer:
        release = distil_set(source, out=parsed.out, execution=execution, observer=observer, **settings)
    show_made(release, parsed.json)
    return 0


def _statistics(arguments: Sequence[str]) -> Path | None:
    """The first argument that can be the statistics: the other settings start from what their certificate says."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    first.add_argument("--out")
    try:
        _, words = first.parse_known_args(list(arguments))
    except argparse.ArgumentError:  # the full parser says what is wrong with it
        return None
    return next((Path(word) for word in words if (Path(word) / CERTIFICATE_FILE).is_file()), None)


def _defaults() -> MethodConfig:
    """What the help shows where no statistics are given."""
    method = get(DEFAULT)
    return method.preset(method.preset_for("cpu"), per_class=DEFAULT_PER_CLASS, epsilon=1.0)
