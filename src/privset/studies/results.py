"""The results folder: one JSON file a finished cell, and the finished sets of unfinished ones.

Several processes may share it. Every file appears whole or not at all, and a cell's file appears before its
parts vanish; so whoever looks for a part first, and for the cell second, never misses both.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from privset.errors import ConfigError
from privset.files import as_json, unwritable, write
from privset.methods import METHODS
from privset.release.software import versions
from privset.studies import along, courses
from privset.studies.study import Cell, Study

NOISE = (
    "The noise of a study is seeded, so that it can be repeated: these sets are not private, though their noise has "
    "the level of the stated epsilon."
)
NO_NOISE = "Trained on the real records themselves, without any noise: not private."


class Results:
    """What is on file for one study, in ``FOLDER/<study>/``; ``device`` is where sets are made now."""

    def __init__(self, folder: Path, study: Study, device: str = "cpu") -> None:
        self.study, self._device = study, device
        self.folder = folder / study.name
        self._parts = self.folder / ".parts"

    def cell(self, cell: Cell) -> dict[str, Any] | None:
        """The finished cell, or None; which recipe counts is the cell's to say, whatever did when it was measured."""
        found = _read(self.folder / f"{cell.name}.json")
        if found is None or cell.counted not in found["recipes"]:
            return found
        return found | {"recipe": cell.counted, "accuracy": found["recipes"][cell.counted]["accuracy"]}

    def part(self, cell: Cell, number: int) -> dict[str, Any] | None:
        """The finished set of that number, or None; one made by another definition of the cell does not count."""
        found = _read(self._part_path(cell, number))
        return found if found is not None and _fits(found, cell) else None

    def parts(self, cell: Cell) -> list[dict[str, Any]]:
        """The finished sets of a cell whose file is not written yet."""
        return [part for number in range(cell.sets) if (part := self.part(cell, number)) is not None]

    def is_done(self, cell: Cell, number: int) -> bool:
        """Whether that set need not be made again."""
        return self.part(cell, number) is not None or self.cell(cell) is not None

    def is_outdated(self, cell: Cell) -> bool:
        """Whether the cell's file was made by another definition of it; it is kept until someone deletes it."""
        found = self.cell(cell)
        return found is not None and not _fits(found, cell)

    def require_writable(self) -> None:
        """Refuse, before anything is measured, a folder that nothing can be put into; none is made yet.

        Raises:
            ConfigError: It cannot be made, or written to.
        """
        if why := unwritable(self._parts):
            raise ConfigError(f"{why}; give another folder for results with --results")

    def keep_part(self, cell: Cell, number: int, measured: dict[str, Any]) -> None:
        """Put the measurements of one set on file; an error of an earlier attempt is forgotten."""
        write(self._part_path(cell, number), as_json(cell.definition() | {"seed": number} | measured))
        self._error_path(cell, number).unlink(missing_ok=True)
        if all(self.is_done(one, number) for one in self._sharing(cell, number)):
            shutil.rmtree(self.work_folder(cell, number), ignore_errors=True)
            self.pieces_note(cell, number).unlink(missing_ok=True)

    def keep_error(self, cell: Cell, number: int, text: str) -> None:
        """Put on file why a set could not be made."""
        write(self._error_path(cell, number), text.encode())

    def errors(self, cell: Cell) -> list[str]:
        """The last line of what went wrong with each set of the cell that could not be made."""
        found = [self._error_path(cell, number) for number in range(cell.sets)]
        return [path.read_text(encoding="utf-8").strip().rpartition("\n")[2] for path in found if path.exists()]

    def is_begun(self, cell: Cell) -> bool:
        """Whether a set of the cell is being made, or was, until the time was up."""
        return any(self._parts.glob(f"{self._sharing(cell, 0)[0].name}.[0-9]*.*/"))

    def assemble(self, cell: Cell) -> None:
        """Write the cell's file if all its sets are finished, then drop them; doing so twice is harmless."""
        if self.cell(cell) is None:
            parts = self.parts(cell)
            if len(parts) < cell.sets:
                return
            write(self.folder / f"{cell.name}.json", as_json(self._summary(cell, parts)))
        for number in range(cell.sets):
            self._part_path(cell, number).unlink(missing_ok=True)
            self._error_path(cell, number).unlink(missing_ok=True)

    def draw(self) -> None:
        """Draw the curves of the cells on file that have several stages, or points along a run, if there are any."""
        with_curve = [cell for cell in self.study.cells if cell.stages is not None or cell.snapshots]
        found = [one for cell in with_curve if (one := self.cell(cell)) is not None]
        drawn = courses.figures(found) | {f"{data}-along": one for data, one in along.figures(found).items()}
        for name, figure in drawn.items():
            write(self.folder / f"{self.study.name}-{name}.svg", figure.svg().encode())
            write(self.folder / f"{self.study.name}-{name}.png", figure.png())

    def _summary(self, cell: Cell, parts: list[dict[str, Any]]) -> dict[str, Any]:
        """The content of a cell's file; seconds are those of one set, the mean over the sets."""
        recipes = {}
        for recipe in cell.recipes:
            measured = [part["recipes"][recipe] for part in parts]
            runs = [accuracy for one in measured for accuracy in one["accuracies"]]
            recipes[recipe] = {
                "accuracy": {
                    "mean": statistics.fmean(runs),
                    "std": statistics.stdev(runs) if len(runs) > 1 else 0.0,
                    "runs": runs,
                },
                "seconds": statistics.fmean(one["seconds"] for one in measured),
            }
            if cell.stages is not None:
                recipes[recipe]["stages"] = courses.summary([one["stages"] for one in measured])
        counted = cell.counted or max(recipes, key=lambda recipe: recipes[recipe]["accuracy"]["mean"])
        return {
            "study": self.study.name,
            "cell": cell.name,
            **cell.definition(),
            "recipe": counted,
            "accuracy": recipes[counted]["accuracy"],
            "recipes": recipes,
            **({"along": along.summary(cell, [part["along"] for part in parts])} if cell.snapshots else {}),
            **{name: parts[0][name] for name in ("parties", "proven", "claim") if name in parts[0]},
            # Of each set, for the records at hand, no guarantee: what votes cost by an accountant that looks at them.
            **(
                {"by_votes": [part.get("by_votes") for part in parts]}
                if any("by_votes" in part for part in parts)
                else {}
            ),
            "published": cell.published,
            "seconds": {
                "generate": statistics.fmean(part["generate_seconds"] for part in parts),
                "evaluate": sum(one["seconds"] for one in recipes.values()),
            },
            # Sets may have been made on different days: where these differ, all are named.
            **{name: _all(part[name] for part in parts) for name in ("device", "command", "commit")},
            "versions": {name: _all(part["versions"].get(name) for part in parts) for name in parts[0]["versions"]},
            "seeds": {"sets": [part["seed"] for part in parts], "networks": [part["network_seeds"] for part in parts]},
            "noise": "none" if cell.is_real else "seeded",
            "note": NO_NOISE if cell.is_real else NOISE,
        }

    def work_folder(self, cell: Cell, number: int) -> Path:
        """Where a set is kept until all cells that train on it are finished; another definition has another."""
        first = self._sharing(cell, number)[0]
        # Half a set of one version, or of one kind of device, does not go on with another.
        made_by = [first.definition(), versions(), self._device.partition(":")[0]]
        known = hashlib.sha256(json.dumps(made_by, sort_keys=True).encode()).hexdigest()
        return self._parts / f"{first.name}.{number}.{known[:8]}"

    def preview(self, cell: Cell) -> Path | None:
        """The picture of the first set of the cell, named after the first cell that trains on it.

        None if that one is on file, and so is its picture: the set may have been made by other code.
        """
        first = self._sharing(cell, 0)[0]
        path = self.folder / f"{first.name}.png"
        return None if path.exists() and self.cell(first) is not None else path

    def pieces_note(self, cell: Cell, number: int) -> Path:
        """What earlier calls spent on such a set; beside its folder, which is all the set's own."""
        folder = self.work_folder(cell, number)
        return folder.with_name(f"{folder.name}.pieces.json")

    def _sharing(self, cell: Cell, number: int) -> list[Cell]:
        """The cells that train on this set, the first of which it is named after."""
        key = cell.set_key(number)
        return [one for one in self.study.cells if number < one.sets and one.set_key(number) == key]

    def _part_path(self, cell: Cell, number: int) -> Path:
        return self._parts / f"{cell.name}.{number}.json"

    def _error_path(self, cell: Cell, number: int) -> Path:
        return self._parts / f"{cell.name}.{number}.error.txt"


def percent(accuracy: Mapping[str, Any]) -> str:
    """An accuracy on file in words: mean and deviation, or, of a single run, which has no deviation, that alone.

    >>> percent({"mean": 71.25, "std": 0.0, "runs": [71.25]}), percent({"mean": 71.0, "std": 1.41, "runs": [70, 72]})
    ('71.2', '71.0 ± 1.4')
    """
    alone = len(accuracy.get("runs", ())) == 1  # means of means have no runs
    return f"{accuracy['mean']:.1f}" + ("" if alone else f" ± {accuracy['std']:.1f}")


def markdown(rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table of these rows."""
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _read(path: Path) -> dict[str, Any] | None:
    """What is on file there, or None.

    Raises:
        ConfigError: It is not what a study writes.
    """
    try:
        found = json.loads(path.read_bytes())
        if not isinstance(found["recipes"], dict) or not isinstance(found["settings"], dict):
            raise TypeError("recipes and settings are no objects")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}); give another folder with --results") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path} is damaged ({type(error).__name__}: {error}); delete it, and it is measured again"
        ) from error
    return found


def _fits(found: dict[str, Any], cell: Cell) -> bool:
    """Whether what is on file was measured as the cell is defined now; a setting that came later, as before it."""
    settings = {**({} if cell.is_real else METHODS[cell.method].config_type.earlier), **found["settings"]}
    same = all((found | {"settings": settings}).get(name) == value for name, value in cell.definition().items())
    return same and set(cell.recipes) <= found["recipes"].keys()


def _all(values: Iterable[str | None]) -> str | None:
    """The one value, or all that occur in their order; None where nothing is known."""
    return ", ".join(dict.fromkeys(value for value in values if value is not None)) or None
