"""The settings that several commands share, and how a command line becomes a data class.

The settings of a method are those of its preset, and the preset depends on the device, the size of the set and epsilon;
so these few options are looked for first, and the rest is parsed with the preset's values as defaults. That is
why ``--help`` shows the values a run would really use.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import tyro

from privset import data, methods
from privset.cli.config import ConfigFile
from privset.data.records import Dataset
from privset.facts import PublicFacts
from privset.methods import MethodConfig
from privset.observer import Observer
from privset.privacy.budget import Accountant, PrivacyBudget

Config = TypeVar("Config", bound=MethodConfig)
Parsed = TypeVar("Parsed")

DEFAULT_PER_CLASS = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataArguments:
    """How the data is found and read."""

    data_dir: Path | None = None
    """Folder to look for a named data set in; the variable PRIVSET_DATA says the same."""
    size: int | None = None
    """Resize images to SIZE x SIZE pixels; needed where they differ in size."""
    channels: int | None = None
    """1 for greyscale, 3 for colour; by default what the images need."""
    test_fraction: float = 0.0
    """Share of your own data to hold out as test split, where there is none."""
    mean: tuple[float, ...] | None = None
    """Public normalisation mean, one number or one a channel; by default the published one, or 0.5."""
    std: tuple[float, ...] | None = None
    """Public normalisation deviation, likewise."""

    def load(self, name: str, observer: Observer) -> Dataset:
        """Read the data set."""
        return data.load(name, **self._options(), observer=observer)

    def load_to_test_on(self, name: str, observer: Observer) -> Dataset:
        """Read other data, that of a test: its test split counts, or all of it where it has none."""
        whole = dataclasses.replace(self, test_fraction=0.0).load(name, observer)
        return whole if whole.test is not None else dataclasses.replace(whole, test=whole.train)

    def facts(self, name: str, observer: Observer) -> PublicFacts:
        """Its public facts, without reading a record."""
        return data.facts_of(name, **self._options(), observer=observer)

    def _options(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(DataArguments)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanArguments(Generic[Config]):
    """What is to be made, from which data, at which cost."""

    data: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="DATA")]]
    """A named data set (`privset datasets`), a folder of images, an .npz or a parquet file."""
    epsilon: float
    """The privacy that may be spent; smaller is more private, inf means none at all."""
    delta: float = 1e-5
    """The probability with which it may be more; keep it well below 1 / number of records."""
    accountant: Accountant = "best"
    """rdp (as the paper), pld (tighter), or best, the smaller of these two valid bounds."""
    method: str = methods.DEFAULT
    """How the set is made; see `privset methods`."""
    preset: str | None = None
    """Which of the method's settings to start from; by default the one for the device."""
    settings: tyro.conf.OmitArgPrefixes[Config]
    reading: tyro.conf.OmitArgPrefixes[DataArguments] = dataclasses.field(default_factory=DataArguments)
    config: Path | None = None
    """TOML file with any of these options, such as the config.toml of a release; the command line wins over it."""
    json: bool = False
    """Print one JSON object."""

    @property
    def budget(self) -> PrivacyBudget:
        """The budget, or a sentence on why it cannot be one."""
        return PrivacyBudget(epsilon=self.epsilon, delta=self.delta, accountant=self.accountant)

    def make_method(self) -> methods.Method[Any]:
        """The method with its settings."""
        return methods.get(self.method)(self.settings)


def parse(kind: Any, arguments: Sequence[str], program: str, **options: Any) -> Any:
    """Arguments of one command; unknown options and values that cannot be read exit with 2 and a sentence."""
    return tyro.cli(kind, args=list(arguments), prog=program, config=(tyro.conf.FlagCreatePairsOff,), **options)


def parse_planned(
    kind: Any, arguments: Sequence[str], program: str, elsewhere: Collection[str] = (), **required: Any
) -> Any:
    """Like `parse`, for a command whose settings start from a method's preset, and may come from a file.

    Args:
        kind: The data class of its arguments.
        arguments: As typed.
        program: The command.
        elsewhere: Options that a file may have although this command does not.
        required: More arguments that have no default.
    """
    file = ConfigFile.named_in(arguments)
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    first.add_argument("--method", default=file.get("method", methods.DEFAULT))
    first.add_argument("--preset", default=file.get("preset", "") or None)
    first.add_argument("--device", default=file.get("device", "cpu"))
    first.add_argument("--epsilon", default=file.get("epsilon", "10"))
    first.add_argument("--per-class", "--per_class", default=file.get("per-class", str(DEFAULT_PER_CLASS)))
    try:
        found, _ = first.parse_known_args(list(arguments))
        epsilon, per_class = float(found.epsilon), int(found.per_class)
    except (argparse.ArgumentError, ValueError):  # the full parser below says what is wrong with it
        found = argparse.Namespace(method=methods.DEFAULT, preset=None, device="cpu")
        epsilon, per_class = 10.0, DEFAULT_PER_CLASS
    chosen = methods.get(found.method)
    preset = found.preset or chosen.preset_for(found.device)
    settings = chosen.preset(preset, per_class=per_class, epsilon=epsilon)
    default = kind(
        data=tyro.MISSING,
        epsilon=tyro.MISSING,
        method=found.method,
        preset=preset,
        settings=settings,
        **required,
    )
    default = file.apply(default, f"{program} --method {found.method}", elsewhere)
    # Whoever is told to ask for help is to see the settings of this method.
    program += f" --method {found.method}" if found.method != methods.DEFAULT else ""
    return parse(kind[chosen.config_type], arguments, program, default=default)
