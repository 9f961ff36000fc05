"""`privset sample`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from privset.cli import console
from privset.cli.arguments import DEFAULT_PER_CLASS, parse
from privset.cli.config import ConfigFile
from privset.cli.generate import show_made
from privset.methods import Execution
from privset.release import sample as draw


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampleArguments:
    """More images from the generator of a release: needs no data, costs nothing."""

    release: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RELEASE")]]
    """The folder of a set that was published with its generator."""
    out: Path
    """Folder to write the release to; it must not exist."""
    per_class: int = DEFAULT_PER_CLASS
    """Synthetic images for each class."""
    seed: int = 0
    """Seed of the codes that images are made of; another one gives other images."""
    device: str = "cpu"
    """cpu, cuda or cuda:N."""
    config: Path | None = None
    """TOML file with any of these options, such as the config.toml of a set; the command line wins over it."""
    json: bool = False
    """Print one JSON object."""


def sample(arguments: Sequence[str]) -> int:
    """Draw a new synthetic set from a release's generator, without data and for free."""
    default = SampleArguments(release=tyro.MISSING, out=tyro.MISSING)
    default = ConfigFile.named_in(arguments).apply(default, "privset sample")
    parsed = parse(SampleArguments, arguments, "privset sample", default=default)
    execution = Execution(device=parsed.device)
    with console.Bars() as bars:
        bars.phase("verifying and drawing", 0)
        release = draw(
            parsed.release, per_class=parsed.per_class, out=parsed.out, seed=parsed.seed, execution=execution
        )
    show_made(release, parsed.json)
    return 0
