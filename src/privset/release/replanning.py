"""Would the method, with the recorded settings, ask what the certificate records? No data is needed to know.

This is what an event that was dropped, or made to look cheaper, fails at, even if seal, digests and epsilon
were all computed anew.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from pydantic import TypeAdapter, ValidationError

from privset import methods
from privset.errors import ConfigError, ReleaseError
from privset.methods import Architecture, SetMethod, TrainingMethod, require_measuring
from privset.methods.method import Method
from privset.methods.plan import Plan
from privset.methods.settings import MethodConfig
from privset.networks.generator_forms import GeneratorForm
from privset.privacy.accounting import GaussianEvent, merge
from privset.release.certificate import Certificate, plain
from privset.release.sections import ClassifierContents, GeneratorContents, SetContents, StatisticsContents

_NOISE_TOLERANCE = 1e-5
"""Calibration ends within a millionth of the smallest noise; where exactly may depend on SciPy's version."""

_CLAIM_TOLERANCE = 1e-6
"""Like that of epsilon: how an accountant's arithmetic is rounded may depend on versions."""


def check(certificate: Certificate) -> None:
    """Plan again from method, settings, public facts and budget, and compare the events.

    A distilled set is planned from its own settings: those that decide what is asked are its statistics' as well. A
    drawn one has those of the release whose generator it was drawn from.

    Raises:
        PrivsetError: The method or its settings are unknown or impossible, or would ask something else.
    """
    method, facts = method_of(certificate), certificate.public_facts()
    seeds = dict(certificate.seeds)
    if certificate.drawn is not None and seeds.pop("drawn", -1) < 0:
        raise ReleaseError("the seed that the images were drawn from is not recorded")
    if certificate.source is not None and seeds.pop("measured", -1) < 0:
        raise ReleaseError("the seed of the statistics is not recorded")
    if seeds != {"public": method.config.seed}:
        raise ReleaseError("the recorded seeds are not those of the settings")
    _check_kind(certificate, method)
    if certificate.holding == "statistics" or certificate.source is not None:
        shapes = require_measuring(type(method))(method.config).shapes(facts)
        if isinstance(certificate.contents, StatisticsContents) and shapes != certificate.contents.shapes:
            raise ReleaseError(f"{method.name} with these settings measures statistics of the shapes {shapes}")
    plan = method.plan(facts, certificate.budget())
    _check_snapshots(certificate, method, plan)
    planned = merge(plan.events)
    recorded = merge(certificate.gaussian_events())
    if len(planned) != len(recorded) or not all(map(_same, planned, recorded)):
        raise ReleaseError(
            f"{certificate.method} with these settings asks {_spell(planned)}, but the certificate records "
            f"{_spell(recorded)}"
        )


def check_claim(certificate: Certificate) -> None:
    """Compare what is said to be claimed with what the method says is claimed for the recorded events.

    A certificate without a claim passes: those of the first privset had none.

    Raises:
        PrivsetError: The method or its settings are unknown or impossible, or something else is claimed, or nothing.
    """
    budget, recorded = certificate.budget(), certificate.claim
    if recorded is None:
        return
    events = certificate.gaussian_events()
    found = method_of(certificate).claim(certificate.public_facts(), events, budget.delta) if budget.private else None
    if found is None:
        raise ReleaseError(f"{certificate.method} with these settings comes with no claim, but one is recorded")
    close = math.isclose(recorded.epsilon, found.epsilon, rel_tol=_CLAIM_TOLERANCE)
    if not close or dataclasses.replace(found, epsilon=recorded.epsilon) != recorded.claim():
        raise ReleaseError(f"the claim is another one than recorded. {found.sentence()}")


def _check_kind(certificate: Certificate, method: Method[Any]) -> None:
    """That the method makes what is published: sets or the statistics they are made of, or that very classifier."""
    contents = certificate.contents
    if not isinstance(contents, ClassifierContents):
        if not isinstance(method, SetMethod):
            raise ReleaseError(f"{method.name} makes no {certificate.holding}")
        _check_generator(certificate, method)
        return
    if not isinstance(method, TrainingMethod):
        raise ReleaseError(f"{method.name} trains no classifier")
    if method.architecture != architecture_of(contents):
        raise ReleaseError(f"{method.name} with these settings trains another network: {method.architecture}")


def _check_generator(certificate: Certificate, method: SetMethod[Any]) -> None:
    """That the method, with these settings, publishes the generator that is published, or was drawn from."""
    contents, expected = certificate.contents, method.generator_form
    published = contents.generator if isinstance(contents, SetContents) else None
    if expected is None and (published is not None or certificate.drawn is not None):
        raise ReleaseError(f"{method.name} with these settings publishes no generator")
    if published is not None and form_of(published) != expected:
        raise ReleaseError(f"{method.name} with these settings trains another generator: {expected}")
    if certificate.drawn is not None and isinstance(contents, SetContents) and len(set(contents.per_class)) != 1:
        raise ReleaseError("as many images of each class are drawn from a generator, and these are not")


def _check_snapshots(certificate: Certificate, method: Method[Any], plan: Plan) -> None:
    """That snapshots were taken when the plan says, and nothing but the plan decided on it."""
    if certificate.snapshots is None:
        return
    if not (isinstance(method, SetMethod) and method.keeps_snapshots):
        raise ReleaseError(f"{method.name} keeps no snapshots")
    expected = method.with_snapshots(plan, len(certificate.snapshots.answers)).snapshots
    if certificate.snapshots.answers != expected:
        raise ReleaseError(f"{method.name} with these settings keeps snapshots after {expected} answers")


def form_of(contents: GeneratorContents) -> GeneratorForm:
    """Of the generator whose weights are published."""
    return GeneratorForm(architecture=contents.architecture, settings=contents.settings)


def architecture_of(contents: ClassifierContents) -> Architecture:
    """Of the network whose weights are published."""
    return Architecture(network=contents.network, width=contents.width, depth=contents.depth)


def method_of(certificate: Certificate) -> Method[Any]:
    """The method with the recorded settings.

    Raises:
        PrivsetError: The method or its settings are unknown or impossible.
    """
    method = methods.get(certificate.method)
    return method(_configured(method.config_type, certificate.configuration))


def _configured(config_type: type[MethodConfig], settings: dict[str, Any]) -> MethodConfig:
    """The settings as the method takes them; each must be known, and come back as it was recorded.

    One that is not recorded came later, and is what was done before it was there.
    """
    unknown = sorted(settings.keys() - {field.name for field in dataclasses.fields(config_type)})
    if unknown:
        raise ReleaseError(f"unknown settings: {', '.join(unknown)}; a newer privset may know them")
    try:
        config = TypeAdapter(config_type).validate_python({**config_type.earlier, **settings})
    except ConfigError as error:
        raise ReleaseError(f"impossible settings: {error}") from error
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise ReleaseError(f"impossible settings: {'.'.join(map(str, problem['loc']))} {problem['msg']}") from error
    back = plain(dataclasses.asdict(config))
    odd = sorted(name for name, value in settings.items() if back[name] != value)
    if odd:
        raise ReleaseError(f"settings that cannot have been used: {', '.join(odd)}")
    return config


def _same(planned: GaussianEvent, recorded: GaussianEvent) -> bool:
    noise = planned.noise_multiplier
    close = math.isclose(recorded.noise_multiplier, noise, rel_tol=_NOISE_TOLERANCE)
    return close and dataclasses.replace(recorded, noise_multiplier=noise) == planned


def _spell(events: tuple[GaussianEvent, ...]) -> str:
    parts = [
        f"{event.count:,} x {event.question} (rate {event.sampling_rate:.6g}"
        f"{'' if event.sampling == 'poisson' else f' {event.sampling}'}, "
        f"noise multiplier {event.noise_multiplier:.6g})"
        for event in events
    ]
    return ", ".join(parts) or "nothing"
