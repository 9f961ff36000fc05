"""What a study is: a named list of cells, each one number of a table to be measured."""

from __future__ import annotations

import dataclasses
import difflib
import fnmatch
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from privset import methods
from privset.errors import ConfigError
from privset.evaluation import AS_TRAINED
from privset.privacy.budget import Accountant, PrivacyBudget

REAL = "real"
"""In place of a method: the real training records themselves, all of them or some of each class. Never private."""

ARCHITECTURES = ("mlp", "lenet", "alexnet", "vgg11", "resnet18")
"""What sets are also tested with, beside the ConvNet; each on the very sets that it is trained on."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    """One accuracy: several independent synthetic sets, several networks trained on each.

    In place of synthetic sets there may be classifiers that a method trains itself, which are tested as they are, or
    random choices of real records.

    Attributes:
        name: Of the cell, and of its file.
        method: Name of the method; "real" for the real records.
        preset: Which of its settings to start from; real records have none.
        data: Name of the data set.
        epsilon: The budget; infinite for none.
        delta: Of the budget.
        accountant: Of the budget.
        per_class: Images a class; None for a classifier, and for all real records.
        settings: Settings of the method that are not the preset's.
        classifier: The network that is trained on the sets.
        recipes: How it is trained; all are measured. "as trained" alone for a method that trains a classifier itself;
            the network is then that of its settings.
        counted: The recipe whose mean is the cell's accuracy; None: the best mean is.
        sets: Independent sets; number s has s as its public seed and as the seed of its noise.
        networks: Networks trained on each set by each recipe.
        stages: Parties that the classes are divided among, in the published order, each with the whole budget; what is
            measured is then the accuracy on all classes after the last stage. None: one party has all.
        held_out: Whether the test split is left alone: every sixth training record is held out and tested on instead.
            For cells that settings are chosen by.
        snapshots: Sets along the run that are measured as well, evenly spaced, each by one network and the first
            recipe; 0 for none.
        published: The best published accuracy in percent, where there is one.
    """

    name: str
    method: str
    preset: str = ""
    data: str
    epsilon: float
    delta: float = 1e-5
    accountant: Accountant = "best"
    per_class: int | None = None
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    classifier: str = "convnet"
    recipes: tuple[str, ...] = ("quick", "paper")
    counted: str | None = None
    sets: int = 3
    networks: int = 3
    stages: int | None = None
    held_out: bool = False
    snapshots: int = 0
    published: float | None = None

    def __post_init__(self) -> None:
        if self.sets < 1 or self.networks < 1 or not self.recipes:
            raise ConfigError(f"cell {self.name}: at least one set, one network and one recipe are needed")
        if self.counted not in (None, *self.recipes):
            raise ConfigError(f"cell {self.name}: the recipe {self.counted} counts, so it must be measured")
        if self.stages is not None and (self.stages < 1 or self.is_real):
            raise ConfigError(f"cell {self.name}: stages are at least one, and real records have none")
        if self.is_real and (self.preset or self.settings or self.budget.private):
            raise ConfigError(f"cell {self.name}: real records have no preset, no settings and no budget")
        if self.trains and (self.recipes, self.networks, self.per_class) != ((AS_TRAINED,), 1, None):
            raise ConfigError(f"cell {self.name}: a classifier is one network, of no set, and tested {AS_TRAINED}")
        if not self.trains and (AS_TRAINED in self.recipes or (self.per_class is None and not self.is_real)):
            raise ConfigError(f"cell {self.name}: a set has a number of images a class, and recipes to train on it")
        if self.snapshots and (self.stages is not None or not self.keeps_snapshots or not self.budget.private):
            raise ConfigError(
                f"cell {self.name}: accuracy against epsilon needs a finite epsilon, one party, and a method that "
                "keeps its set along the run"
            )

    @property
    def keeps_snapshots(self) -> bool:
        """Whether sets along the run can be kept."""
        return not self.is_real and methods.get(self.method).keeps_snapshots

    @property
    def is_real(self) -> bool:
        """Whether the real records are trained on; there is no method then."""
        return self.method == REAL

    @property
    def trains(self) -> bool:
        """Whether a classifier is made, and no set."""
        return not self.is_real and issubclass(methods.get(self.method), methods.TrainingMethod)

    @property
    def budget(self) -> PrivacyBudget:
        """What each set may cost."""
        return PrivacyBudget(epsilon=self.epsilon, delta=self.delta, accountant=self.accountant)

    def make_method(self, seed: int) -> methods.Method[Any]:
        """The method with the preset's settings, the cell's own, and this public seed."""
        chosen = methods.get(self.method)
        start = chosen.preset(self.preset, per_class=self.per_class or 1, epsilon=self.epsilon)
        known = {field.name for field in dataclasses.fields(start)} - {"seed", "per_class"}
        if unknown := sorted(set(self.settings) - known):
            raise ConfigError(
                f"cell {self.name}: {self.method} has no setting {', '.join(unknown)} that a cell can choose; "
                f"it has {', '.join(sorted(known))}"
            )
        return chosen(dataclasses.replace(start, **self.settings, seed=seed))

    def definition(self) -> dict[str, Any]:
        """Everything that its accuracy depends on but the code and the seeds, as JSON gives it back."""
        settings = {} if self.is_real else dataclasses.asdict(self.make_method(0).config)
        settings.pop("seed", None)  # each set has its own
        fields = {
            "method": self.method,
            "data": self.data,
            "epsilon": "inf" if math.isinf(self.epsilon) else self.epsilon,
            "delta": self.delta,
            "accountant": self.accountant,
            "per_class": self.per_class,
            "classifier": settings["network"] if self.trains else self.classifier,
            "networks": self.networks,
            "settings": settings,
        }
        if self.stages is not None:  # others were put on file without a word about it
            fields["stages"] = self.stages
        if self.held_out:
            fields["held_out"] = True
        if self.snapshots:
            fields["snapshots"] = self.snapshots
        return json.loads(json.dumps(fields))

    def set_key(self, number: int) -> str:
        """Tells whether set ``number`` is also that of another cell, which trains other networks on it."""
        if self.is_real or self.trains or self.stages is not None:  # nothing is made that could be shared
            return f"{self.name}.{number}"
        names = ("method", "preset", "data", "epsilon", "delta", "accountant", "per_class", "held_out", "snapshots")
        made = {name: getattr(self, name) for name in names} | {"settings": dict(self.settings), "seed": number}
        return json.dumps(made, sort_keys=True, default=str)


_NAMED = 12
"""So many cells are named to whoever names one that is not there."""


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
                near, others = names, ""
                if len(names) > _NAMED:
                    near = difflib.get_close_matches(pattern, names, n=3, cutoff=0.3) or names[:3]
                    others = f", and {len(names) - len(near)} others that `privset study list --json` names"
                raise ConfigError(f"study {self.name} has no cell {pattern!r}; it has {', '.join(near)}{others}")
            wanted |= matching
        return tuple(cell for cell in self.cells if cell.name in wanted)
