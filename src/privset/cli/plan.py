"""`privset plan`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from privset import pipeline
from privset.cli import console
from privset.cli.arguments import Config, PlanArguments, parse_planned
from privset.errors import ConfigError
from privset.methods import METHODS, Execution, MeasuringMethod, Plan, SetConfig
from privset.privacy.budget import RELATION
from privset.rehearsal import rehearse, require_rehearsable
from privset.release.statement import rounded_up

_OF_A_RUN = ("out", "chunk", "noise-seed", "snapshots", "tensorboard")
"""Options of `privset generate` that cost nothing: a file that is written for a run can be planned as it is."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DevicePlanArguments(PlanArguments[Config]):
    """What a run would ask, and what that would cost."""

    device: str = "cpu"
    """cpu, cuda or cuda:N: the device of the run, which the preset depends on; this machine need not have it."""

    time: bool = False
    """Say, too, how long a run takes on this machine, by its beginning on random images, which needs the memory of a
    run. For methods that ask as they go."""

    def __post_init__(self) -> None:
        if self.device != "cpu" and not self.device.startswith("cuda"):
            raise ConfigError(f"device must be cpu, cuda or cuda:N, not {self.device!r}")


def plan(arguments: Sequence[str]) -> int:
    """What a method would ask and what it would cost; looks at no image."""
    parsed = parse_planned(DevicePlanArguments, arguments, "privset plan", elsewhere=_OF_A_RUN)
    budget, method = parsed.budget, parsed.make_method()
    execution = None
    if parsed.time:
        require_rehearsable(method)
        execution = Execution(device=parsed.device)  # which this machine must have, then
    with console.Bars() as bars:
        facts = parsed.reading.facts(parsed.data, bars)
        bars.phase("calibrating the noise", 0)
        planned = pipeline.plan(facts, method=method, budget=budget)
        rehearsal = None
        if execution is not None:
            bars.phase("running its beginning on random images", 0)
            rehearsal = rehearse(facts, method=method, budget=budget, execution=execution)
    if parsed.json:
        taken = {} if rehearsal is None else {"run": {"seconds": rehearsal.seconds, **dataclasses.asdict(rehearsal)}}
        console.show_json(planned.to_json() | {"resumable": method.resumable} | taken)
        return 0
    console.show(describe(planned))
    if rehearsal is not None:
        console.show(
            f"A run takes about {console.spell(rehearsal.seconds)} on this machine ({parsed.device}), by its beginning "
            "on random images; longer beside other work."
        )
    return 0


def describe(planned: Plan, *, measuring: bool = False) -> str:
    """The plan in a few lines, for a data holder; ``measuring`` if no set is made yet."""
    facts, budget = planned.facts, planned.budget
    lines = [
        f"{planned.method} on {facts.name}: {_made(planned, measuring)} {len(facts.classes)} classes, from "
        f"{facts.size:,} records of "
        f"{'x'.join(map(str, facts.shape))}.",
        f"It asks {planned.questions:,} question(s):",
        *(
            f"  {event.count:,} of kind {event.question}, noise multiplier {event.noise_multiplier:.4g}, each "
            f"{'record' if event.sampling == 'poisson' else 'shard'} taking part with probability "
            f"{event.sampling_rate:.4g}"
            for event in planned.events
        ),
    ]
    batch = getattr(planned.config, "batch_size", None) or 0  # none is everyone, by choice
    method = METHODS[planned.method]
    asks = method.resumable and not issubclass(method, MeasuringMethod)  # private networks have batches of their shards
    if batch > facts.size and asks:
        lines.append(f"Batches of {batch:,} are more than all records: everyone takes part in every answer.")
    if budget.private:
        pld = "not computed" if planned.spending.pld is None else rounded_up(planned.spending.pld)
        lines.append(
            f"Cost: epsilon {rounded_up(planned.epsilon)} of {budget.epsilon:g} at delta {budget.delta:g} "
            f"({RELATION}; accountant {budget.accountant}: rdp {rounded_up(planned.spending.rdp)}, pld {pld})."
        )
        if planned.claim is not None:
            lines.append(planned.claim.explained())
    else:
        lines.append("NOT PRIVATE: epsilon is infinite, the answers carry no noise.")
    if planned.caution is not None:
        lines.append(f"CAUTION: {planned.caution}.")
    if budget.private and not METHODS[planned.method].resumable:
        lines.append(
            "A run that is stopped cannot be gone on with: what it charged is lost, and another is charged anew."
        )
    if planned.snapshots:
        moments = ", ".join(f"{answers:,}" for answers in planned.snapshots)
        lines.append(f"At no further cost, the set is also published as it is after {moments} answers.")
    return "\n".join(lines)


def _made(planned: Plan, measuring: bool) -> str:
    if not isinstance(planned.config, SetConfig):
        return "a classifier of"
    images = planned.config.per_class * len(planned.facts.classes)
    return "statistics in" if measuring else f"{images} synthetic images in"
