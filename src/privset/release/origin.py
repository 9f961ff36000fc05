"""What a release, and sets that were made from it for nothing, say alike in their certificates.

A set is distilled from published statistics, or drawn from a published generator, or both: drawn from the generator of
a set that was distilled. It repeats what its origin says of questions and guarantee, and costs nothing beside it. That
is only so if it does come from there; what is compared here is what certificates can show of it.
"""

from __future__ import annotations

from privset.methods import require_measuring
from privset.release import replanning
from privset.release.certificate import LEDGER_FILE, Certificate
from privset.release.sections import SetContents, Source, StatisticsContents


def differences(one: Certificate, other: Certificate) -> str:
    """What two certificates of one payment say that cannot both be so, in a few words; empty if all fits.

    Args:
        one: Of statistics, of a set distilled from them, of a set with its generator, or of a set drawn from one.
        other: Another one, whose `payment` is the same, or whose `maker` is.
    """
    said = [same_questions(one, other), {"statistics": statistics_of(one) == statistics_of(other)}]
    if statistics_of(one) is not None and one.method == other.method:
        said.append(same_measurement(one, other))
    if maker(one) == maker(other):
        said += [{"generator": generator_of(one) == generator_of(other)}, same_training(one, other)]
    return named(*said)


def same_questions(one: Certificate, other: Certificate) -> dict[str, bool]:
    """Whether two certificates say the same of what was asked, by the name of what they say."""
    return {
        "guarantee": one.guarantee == other.guarantee,
        "noise source": one.noise_source == other.noise_source,
        "events": one.events == other.events,
        "limits": one.not_accounted == other.not_accounted,
        "claim": one.claim == other.claim,
        "facts": one.facts == other.facts,
        "method": one.method == other.method,
        "ledger": one.files.get(LEDGER_FILE) == other.files.get(LEDGER_FILE),
    }


def same_measurement(one: Certificate, other: Certificate) -> dict[str, bool]:
    """The same of what statistics were measured with; of these, or of sets distilled from them.

    Raises:
        PrivsetError: The method or its settings are unknown or impossible, or it measures nothing.
    """
    method, config = replanning.method_of(one), replanning.method_of(other).config
    return {
        "seed": _measured_seed(one) == _measured_seed(other),
        "settings": all(
            getattr(method.config, name) == getattr(config, name)
            for name in require_measuring(type(method)).measured_with
        ),
    }


def same_training(one: Certificate, other: Certificate) -> dict[str, bool]:
    """The same of how a generator came to be; of the set it was published with, or of sets drawn from it."""
    return {
        "source": one.source == other.source,
        "seeds": _without_drawing(one) == _without_drawing(other),
        "settings": one.configuration == other.configuration,
    }


def named(*said: dict[str, bool]) -> str:
    """The names of what is not the same, each once."""
    return ", ".join(dict.fromkeys(name for one in said for name, same in one.items() if not same))


def maker(certificate: Certificate) -> str:
    """The seal of the release whose generator made the images, if one did; of any other release its own."""
    return certificate.seal if certificate.drawn is None else certificate.drawn.certificate


def generator_of(certificate: Certificate) -> str | None:
    """The digest of the generator that is published with the images, or that they were drawn from."""
    if certificate.drawn is not None:
        return certificate.drawn.generator
    contents = certificate.contents
    published = contents.generator if isinstance(contents, SetContents) else None
    return None if published is None else published.digest


def statistics_of(certificate: Certificate) -> Source | None:
    """The statistics that are published, or that the set was distilled from; a set is none."""
    if isinstance(certificate.contents, StatisticsContents):
        return Source(certificate=certificate.seal, digest=certificate.contents.digest)
    return certificate.source


def _measured_seed(certificate: Certificate) -> int | None:
    return certificate.seeds.get("public" if certificate.source is None else "measured")


def _without_drawing(certificate: Certificate) -> dict[str, int]:
    return {name: seed for name, seed in certificate.seeds.items() if name != "drawn"}
