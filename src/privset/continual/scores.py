"""What was learned and what was forgotten, stage by stage, from confusion matrices.

After stage t, a(t, j) is the accuracy on the test images of party j's classes. The average accuracy is the mean of
a(t, j) over the parties j <= t; forgetting is the mean over the parties j < t of how much a(t, j) is below the best
a(s, j) of a stage s < t (Chaudhry et al., ECCV 2018).
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from typing import Any

from privset.evaluation import Evaluation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Score:
    """Accuracies after one stage, in percent.

    Attributes:
        seen: Classes of all parties so far.
        accuracy: Of each network, on all test images of these.
        parties: On the classes of each party so far; the mean over the networks.
        classes: On each class so far, likewise.
        forgotten: For each earlier party, how far below its best accuracy so far it is now; negative if above.
    """

    seen: tuple[str, ...]
    accuracy: tuple[float, ...]
    parties: tuple[float, ...]
    classes: tuple[float, ...]
    forgotten: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Accuracy on all test images of the classes seen, the mean over the networks."""
        return statistics.fmean(self.accuracy)

    @property
    def deviation(self) -> float:
        """Its sample standard deviation; 0 if there is only one network."""
        return statistics.stdev(self.accuracy) if len(self.accuracy) > 1 else 0.0

    @property
    def average(self) -> float:
        """The average accuracy: each party counts alike."""
        return statistics.fmean(self.parties)

    @property
    def forgetting(self) -> float:
        """The mean over earlier parties; 0 at the first stage."""
        return statistics.fmean(self.forgotten) if self.forgotten else 0.0

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "seen": list(self.seen),
            "accuracy": {"mean": self.mean, "std": self.deviation, "runs": list(self.accuracy)},
            "average_accuracy": self.average,
            "party_accuracy": list(self.parties),
            "class_accuracy": dict(zip(self.seen, self.classes, strict=True)),
            "forgetting": self.forgetting,
            "forgotten": list(self.forgotten),
        }


def score(parties: Sequence[Sequence[str]], evaluations: Sequence[Evaluation]) -> list[Score]:
    """The scores after each stage.

    Args:
        parties: Classes of each party.
        evaluations: After each stage so far, on the test images of all classes seen by then.
    """
    scores: list[Score] = []
    for stage, found in enumerate(evaluations):
        rows = dict(zip(found.classes, found.confusion, strict=True))
        right = {name: rows[name][found.classes.index(name)] for party in parties[: stage + 1] for name in party}
        total = {name: sum(rows[name]) for name in right}
        now = [_percent(party, right, total) for party in parties[: stage + 1]]
        earlier = range(stage)
        best = [max(scores[then].parties[party] for then in range(party, stage)) for party in earlier]
        scores.append(
            Score(
                seen=tuple(right),
                accuracy=found.accuracies,
                parties=tuple(now),
                classes=tuple(_percent([name], right, total) for name in right),
                forgotten=tuple(best[party] - now[party] for party in earlier),
            )
        )
    return scores


def _percent(names: Sequence[str], right: dict[str, int], total: dict[str, int]) -> float:
    return 100 * sum(right[name] for name in names) / sum(total[name] for name in names)
