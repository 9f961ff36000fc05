"""`--config run.toml`: options from a file, for what is too long to type or to be repeated.

The keys are the names of the options, without the dashes in front; whatever is also on the command line is taken from
there. Paths mean what they would mean on the command line. A key that is no option is refused.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import tomllib
from collections.abc import Collection, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from privset.errors import ConfigError
from privset.release.configuration import NONE

Arguments = TypeVar("Arguments")


@dataclasses.dataclass(frozen=True)
class ConfigFile:
    """Options that were read from a file.

    Attributes:
        path: The file; None if there is none.
        values: By the name of the option, in kebab case.
        overruled: Options that the command line gives as well.
    """

    path: Path | None
    values: dict[str, Any]
    overruled: frozenset[str]

    @classmethod
    def named_in(cls, arguments: Sequence[str]) -> ConfigFile:
        """The file that these arguments name with ``--config``, if they do.

        Raises:
            ConfigError: It cannot be read, is not TOML, or has tables.
        """
        first = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
        first.add_argument("--config", type=Path)
        try:
            path = first.parse_known_args(list(arguments))[0].config
        except argparse.ArgumentError:  # the full parser says what is wrong with it
            path = None
        given = frozenset(_flag(word[2:].partition("=")[0]) for word in arguments if word.startswith("--"))
        return cls(path, {} if path is None else _read(path), given)

    def get(self, name: str, otherwise: str) -> str:
        """What the file says of one option, as it would be typed."""
        return str(self.values.get(name, otherwise))

    def apply(self, default: Arguments, program: str, elsewhere: Collection[str] = ()) -> Arguments:
        """The arguments of a command, with what the file says in place of their defaults.

        Args:
            default: The arguments as they are without the file.
            program: The command, for messages.
            elsewhere: Options of related commands, which the same file may serve; they are left aside.

        Raises:
            ConfigError: A key is none of its options, or a value is not of the right kind.
        """
        known = set(_options(default)) - {"config"}
        for name in sorted(self.values.keys() - known - set(elsewhere)):
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"`{program} --help` lists what there is"
            raise ConfigError(f"{self.path}: {name} is not an option of {program} here; {hint}")
        return self._overlaid(default)

    def _overlaid(self, one: Any) -> Any:
        hints, changes = get_type_hints(type(one)), {}
        for field in dataclasses.fields(one):
            now, flag = getattr(one, field.name), _flag(field.name)
            if dataclasses.is_dataclass(now):
                changes[field.name] = self._overlaid(now)
            elif flag in self.values and flag not in self.overruled:
                changes[field.name] = self._checked(flag, self.values[flag], hints[field.name])
        return dataclasses.replace(one, **changes)

    def _checked(self, flag: str, value: Any, hint: Any) -> Any:
        """The value as the command takes it; text is no number here, and a number no text."""
        kinds = get_args(hint) or (hint,)
        if value == NONE and NoneType in kinds:
            return None
        wanted = value
        if any(get_origin(kind) is tuple for kind in (hint, *kinds)):
            wanted = tuple(value) if isinstance(value, list) else (value,)
        elif isinstance(value, str) and Path in kinds:
            wanted = Path(value)
        try:
            return TypeAdapter(hint).validate_python(wanted, strict=True)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]["msg"]
            raise ConfigError(f"{self.path}: {flag} cannot be {value!r}: {problem}") from error


def _read(path: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: the configuration cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise ConfigError(f"{path}: not TOML: {error}; write lines such as `per-class = 10`") from error
    values = {}
    for name, value in found.items():
        if isinstance(value, dict):
            raise ConfigError(f"{path}: [{name}] is a table; write all options at the top, without tables")
        if _flag(name) in values:
            raise ConfigError(f"{path}: {_flag(name)} is given twice")
        values[_flag(name)] = value
    return values


def _options(one: Any) -> list[str]:
    """The names of all options, those of parts included."""
    names = []
    for field in dataclasses.fields(one):
        value = getattr(one, field.name)
        names += _options(value) if dataclasses.is_dataclass(value) else [_flag(field.name)]
    return names


def _flag(name: str) -> str:
    return name.replace("_", "-")
