"""What a study is: a named list of cells, each one number of a table to be measured."""

from __future__ import annotations

import dataclasses
import fnmatch
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from privset import methods
from privset.errors import ConfigError
from privset.privacy.budget import Accountant, PrivacyBudget


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    """One accuracy: several independent synthetic sets, several networks trained on each.

    Attributes:
        name: Of the cell, and of its file.
        method: Name of the method.
        preset: Which of its settings to start from.
        data: Name of the data set.
        epsilon: The budget; infinite for none.
        delta: Of the budget.
        accountant: Of the budget.
        per_class: Images a class.
        settings: Settings of the method that are not the preset's.
        classifier: The network that is trained on the sets.
        recipes: How it is trained; all are measured, and the best mean is the cell's accuracy.
        sets: Independent sets; number s has s as its public seed and as the seed of its noise.
        networks: Networks trained on each set by each recipe.
        published: The best published accuracy in percent, where there is one.
    """

    name: str
    method: str
    preset: str
    data: str
    epsilon: float
    delta: float = 1e-5
    accountant: Accountant = "best"
    per_class: int
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    classifier: str = "convnet"
    recipes: tuple[str, ...] = ("quick", "paper")
    sets: int = 3
    networks: int = 3
    published: float | None = None

    def __post_init__(self) -> None:
        if self.sets < 1 or self.networks < 1 or not self.recipes:
            raise ConfigError(f"cell {self.name}: at least one set, one network and one recipe are needed")

    @property
    def budget(self) -> PrivacyBudget:
        """What each set may cost."""
        return PrivacyBudget(epsilon=self.epsilon, delta=self.delta, accountant=self.accountant)

    def make_method(self, seed: int) -> methods.Method[Any]:
        """The method with the preset's settings, the cell's own, and this public seed."""
        chosen = methods.get(self.method)
        start = chosen.preset(self.preset, per_class=self.per_class, epsilon=self.epsilon)
        known = {field.name for field in dataclasses.fields(start)} - {"seed", "per_class"}
        if unknown := sorted(set(self.settings) - known):
            raise ConfigError(
                f"cell {self.name}: {self.method} has no setting {', '.join(unknown)} that a cell can choose; "
                f"it has {', '.join(sorted(known))}"
            )
        return chosen(dataclasses.replace(start, **self.settings, seed=seed))

    def definition(self) -> dict[str, Any]:
        """Everything that its accuracy depends on but the code and the seeds, as JSON gives it back."""
        settings = dataclasses.asdict(self.make_method(0).config)
        del settings["seed"]  # each set has its own
        fields = {
            "method": self.method,
            "data": self.data,
            "epsilon": "inf" if math.isinf(self.epsilon) else self.epsilon,
            "delta": self.delta,
            "accountant": self.accountant,
            "per_class": self.per_class,
            "classifier": self.classifier,
            "networks": self.networks,
            "settings": settings,
        }
        return json.loads(json.dumps(fields))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """Cells that make one table.

    Attributes:
        name: As typed on the command line.
        what: One line on what it shows.
        cells: In the order they are run and shown.
    """

    name: str
    what: str
    cells: tuple[Cell, ...]

    def __post_init__(self) -> None:
        if len({cell.name for cell in self.cells}) < len(self.cells):
            raise ConfigError(f"study {self.name}: two cells have one name, and would share one file")

    def choose(self, patterns: Sequence[str] = ()) -> tuple[Cell, ...]:
        """The cells of these names, or patterns such as ``mnist-*``, in the study's order; all if none are given.

        Raises:
            ConfigError: One of them is not the name of any cell.
        """
        names = [cell.name for cell in self.cells]
        wanted = set() if patterns else set(names)
        for pattern in patterns:
            matching = {name for name in names if fnmatch.fnmatchcase(name, pattern)}
            if not matching:
                raise ConfigError(f"study {self.name} has no cell {pattern!r}; it has {', '.join(names)}")
            wanted |= matching
        return tuple(cell for cell in self.cells if cell.name in wanted)
