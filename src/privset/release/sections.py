"""The parts a certificate is made of; `privset.release.certificate` says how they may change."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema

from privset.methods.claim import Claim
from privset.privacy.accounting import Sampling
from privset.privacy.budget import Accountant
from privset.release.synthetic import PixelForm

Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$", description="SHA-256, in hexadecimal")]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Epsilon = Annotated[
    float,
    Field(ge=0, allow_inf_nan=True),
    BeforeValidator(lambda value: math.inf if value == "inf" else value),
    PlainSerializer(lambda value: "inf" if math.isinf(value) else value, return_type=float | str),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, {"const": "inf"}]}),
]


class Document(BaseModel):
    """Strict: what is not understood is refused, and an infinite number only where it has a meaning."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


class EpsilonByAccountant(Document):
    """Upper bounds on epsilon for the same events; each of them holds."""

    rdp: Epsilon = Field(description="By Renyi differential privacy")
    pld: Epsilon | None = Field(description="By the privacy loss distribution; null where it is not computed")


class Guarantee(Document):
    """The differential-privacy guarantee of the release."""

    private: bool = Field(description="False if there is no guarantee: an infinite budget, or noise from a seed")
    epsilon_budgeted: Epsilon = Field(description="What the release might cost")
    epsilon_spent: Epsilon = Field(description="What it did cost, by the accountant named here")
    delta: float = Field(gt=0, lt=1)
    relation: str = Field(description="Which data sets count as neighbours")
    accountant: Accountant = Field(description="best is the smaller of the two valid bounds")
    epsilon_by: EpsilonByAccountant


class Event(Document):
    """``count`` answers with Gaussian noise, each on its own Poisson sample of records, or on some shards of them."""

    question: str = Field(description="Which of the curator's questions was asked")
    sampling_rate: float = Field(gt=0, le=1, description="Probability with which a record takes part")
    noise_multiplier: float = Field(ge=0, description="Standard deviation of the noise over the sensitivity")
    count: Positive
    sampling: Sampling = Field(
        default="poisson",
        description="without-replacement: a share of disjoint shards takes part, of a fixed size, chosen in secret; "
        "otherwise, and where it is left out, each record by itself",
    )


class Facts(Document):
    """What is treated as public about the data; nothing in it is computed from a pixel."""

    name: str
    channels: Positive
    height: Positive
    width: Positive
    classes: tuple[str, ...] = Field(description="Label k means the k-th of these")
    size: Positive = Field(description="Number of private records")
    mean: tuple[float, ...] = Field(description="For each channel: subtracted from pixels scaled to [0, 1]")
    std: tuple[float, ...] = Field(description="For each channel: divided by afterwards")


class GeneratorContents(Document):
    """The weights of a generator that is published with the set it made."""

    architecture: str = Field(description="Name of the architecture")
    settings: dict[str, bool | Annotated[int, Field(ge=1, le=2**16)]] = Field(description="Every setting of it")
    numbers: Positive = Field(description="How many numbers its state has in all")
    digest: Digest = Field(description="SHA-256 of the tensors' content, however a file encodes them")


class SnapshotsContents(Document):
    """The images of a set as they were along the run that made it."""

    answers: tuple[Positive, ...] = Field(
        min_length=1, description="After how many answers each was kept; the last is the set itself"
    )
    digest: Digest = Field(description="SHA-256 of the tensors' content, however a file encodes them")


class SetContents(Document):
    """The tensors of a synthetic set."""

    kind: Literal["set"]
    images: Positive = Field(description="Number of synthetic images")
    per_class: tuple[Count, ...] = Field(description="Number of synthetic images of each class")
    pixel_form: PixelForm
    digest: Digest = Field(description="SHA-256 of the tensors' content, however a file encodes them")
    generator: GeneratorContents | None = Field(
        default=None, description="Only if the generator that made the images is published with them"
    )
    snapshots: SnapshotsContents | None = Field(
        default=None, description="Only if the images as they were along the run are published with them"
    )


class StatisticsContents(Document):
    """The tensors of noisy statistics, which sets can be distilled from."""

    kind: Literal["statistics"]
    numbers: Positive = Field(description="How many noisy numbers there are in all")
    shapes: dict[str, tuple[Positive, ...]] = Field(description="Shape of every tensor, by its name")
    digest: Digest = Field(description="SHA-256 of the tensors' content, however a file encodes them")


class ClassifierContents(Document):
    """The weights of a classifier that was trained on the private records themselves."""

    kind: Literal["classifier"]
    network: str = Field(description="Name of the architecture")
    width: Annotated[int, Field(ge=1, le=2**16)] | None = Field(
        description="Its channels or hidden units; null for its own"
    )
    depth: Annotated[int, Field(ge=1, le=16)] | None = Field(description="Its number of blocks; null for its own")
    weights: Positive = Field(description="How many numbers were learned")
    digest: Digest = Field(description="SHA-256 of the tensors' content, however a file encodes them")


Contents = Annotated[
    SetContents | StatisticsContents | ClassifierContents,
    Field(discriminator="kind", description="What is published"),
]


class Part(Document):
    """One of the releases that a set was joined from; its certificate and its ledger are in the folder ``parts``."""

    certificate: Digest = Field(description="The seal of its certificate")
    digest: Digest = Field(description="SHA-256 of its content")
    images: Positive = Field(description="How many of the images are its, in the order of the parts")


class Joined(Document):
    """The releases that a set was joined from."""

    disjoint: bool = Field(
        description="Whether no record lies in two of them, on the word of whoever joined them: the largest epsilon "
        "then holds for all, and otherwise what was asked adds up"
    )
    parts: tuple[Part, ...] = Field(min_length=2)


class Claimed(Document):
    """What the original analysis of the method says these settings cost: claimed, not proven, and not the guarantee."""

    epsilon: Epsilon = Field(description="As claimed; what is proven is in the guarantee")
    delta: float = Field(gt=0, lt=1)
    relation: str = Field(description="Which data sets count as neighbours in that analysis")
    by: str = Field(description="Whose analysis it is")
    unsound: str | None = Field(description="Why it does not hold; null where it does, for its own relation")

    def claim(self) -> Claim:
        """In the form that methods give it."""
        return Claim(**self.model_dump(mode="python"))


class Party(Document):
    """Whose release it is, where parties with classes of their own publish one after the other."""

    classes: tuple[str, ...] = Field(
        min_length=1, description="The classes that the party has; a classifier has outputs for others as well"
    )
    received: tuple[Digest, ...] = Field(
        description="Seals of the certificates of the releases that it had received, in their order; of classifiers it "
        "went on from the last"
    )


class Source(Document):
    """The statistics that a set was distilled from."""

    certificate: Digest = Field(description="The seal of their certificate")
    digest: Digest = Field(description="SHA-256 of their content")


class Drawn(Document):
    """The generator that the images of a set were drawn from, and the release that it was published in."""

    certificate: Digest = Field(description="The seal of that release's certificate")
    generator: Digest = Field(description="SHA-256 of the generator's content")
