"""What G-PATE and DataLens share: teachers on disjoint shards that say how generated images should change.

The teachers are discriminators of a conditional GAN, one for each shard of the records, and wards of the curator. A
generator, which is public, makes images; every teacher has a gradient for each of them; what comes out is a noisy
aggregate of these, the answer to `votes` questions, and the generator learns to make images that are moved by it. How a
gradient becomes votes, and votes a move, is what the two methods differ in.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Callable
from typing import ClassVar, TypeVar

import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses
from torch import Tensor
from torch.func import grad

from privset.errors import BudgetError
from privset.facts import PublicFacts, scale
from privset.methods.descent import Adam, step_of_adam
from privset.methods.drawing import drawn, even_labels, glimpse, settled
from privset.methods.method import Execution, SetMethod, Synthesis
from privset.methods.plan import Plan, presets_that_ask_fewer
from privset.methods.settings import (
    SetConfig,
    require,
    require_at_least_one,
    require_generator,
    require_positive,
    require_shards,
)
from privset.networks.adversaries import ConditionalDiscriminator
from privset.networks.generator_forms import GeneratorForm, TrainedGenerator
from privset.networks.generators import ConditionalGenerator
from privset.networks.precision import tensor_cores
from privset.observer import Glimpse, Observer
from privset.privacy import Curator, GaussianEvent, PrivacyBudget, VotesQuestion, Wards, calibrate, spend
from privset.privacy.ward_steps import Learn, Public, State
from privset.privacy.wards import Begin
from privset.recording import sent

_BETAS = (0.5, 0.999)
"""Of Adam, for generator and teachers."""
_MOST_STEPS = 100_000
"""More steps than any budget is worth; where the search for their number ends."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TeacherConfig(SetConfig):
    """Settings of a generator that learns from teachers."""

    earlier: ClassVar = {"same_codes": False, "by_class": False}

    teachers: int | None = None
    """Discriminators, each with a shard of the records; None is one for every 15 records."""
    by_class: bool = False
    """Whether shards are dealt class by class, as DataLens publishes it, so that teachers know about as much of each;
    if not, every record draws its own. Of a class that is much larger than others, some records are then in none."""
    batch_size: int = 15
    """Records of its own shard that a teacher learns from in a step, and as many generated ones."""
    pretraining: int = 0
    """Steps of every teacher before the first question."""
    teacher_steps: int = 1
    """Steps of every teacher before each further question."""
    images: int = 15
    """Generated images that each question is about; all of one step of the generator."""
    generator_steps: int = 1
    """Steps of Adam that the generator takes towards each answer, as published one; more of them cost no privacy."""
    steps: int | None = None
    """Steps of the generator; None is as many as the budget pays for with the noise that is given."""
    sigma: float | None = None
    """Deviation of the noise on every sum of votes; None calibrates it to the budget, a number is refused if it costs
    more than that."""
    threshold: float = 0.5
    """Share of the teachers that must agree, noise included, or nothing is changed."""
    rate: float = 1e-3
    """Learning rate of generator and teachers, both by Adam."""
    code: int = 50
    """Random numbers that the generator makes an image of, beside its label."""
    generator_width: int = 1024
    """Hidden units of the generator."""
    generator_maps: int = 128
    """Maps of the generator's layers."""
    teacher_width: int = 256
    """Hidden units of a teacher."""
    teacher_maps: int = 32
    """Maps of a teacher's second layer, beside one for each class."""
    teacher_norm: bool = True
    """Whether teachers have batch norm, as published; without it they also see what all images have in common."""
    label_weight: float = 1.0
    """What a label is multiplied by where it is given to a layer of a teacher; published is 1. More has teachers tell
    classes apart sooner."""
    same_codes: bool = False
    """Whether all that is generated in a step has the same codes, as published: for each lesson of the teachers, each
    class and the question; if not, each has its own. The first step's are those of pretraining, too."""
    publish_generator: bool = True
    """Whether the generator is published with the set, so that `privset sample` can draw more images from it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least_one(self, "teachers", "batch_size", "teacher_steps", "steps")
        require_at_least_one(self, "teacher_width", "teacher_maps", "generator_steps")
        require_generator(self, "code", "generator_width", "generator_maps")
        require(self.images >= 2, f"images must be at least 2, for batch norm, not {self.images}")
        require(self.pretraining >= 0, f"pretraining must be 0 or more, not {self.pretraining}")
        require(0 <= self.threshold <= 1, f"threshold must lie in [0, 1], not {self.threshold}")
        require_positive(self, "rate", "sigma", "label_weight")
        require(self.steps is None or self.steps <= _MOST_STEPS, f"steps must be at most {_MOST_STEPS}")
        require(
            self.steps is not None or self.sigma is not None,
            "give steps, and the noise is calibrated; or sigma, and the steps are as many as can be paid for",
        )

    def teachers_for(self, facts: PublicFacts) -> int:
        """How many teachers there are for this data."""
        return self.teachers or max(1, facts.size // 15)


Config = TypeVar("Config", bound=TeacherConfig)
Codes = Callable[[Tensor, int], Tensor]
"""(labels [n], how many of them follow each other before codes may come again) -> codes [n, length + classes]."""
Moves = Callable[[Tensor, Tensor], Tensor]
"""(generated pixels [n, c, h, w], labels [n]) -> how each should change, of noisy answers."""


class TeacherMethod(SetMethod[Config]):
    """A generator trained by what teachers on disjoint shards vote for."""

    prelude: ClassVar = {"pretraining": "teaching teachers"}

    @abc.abstractmethod
    def _questions(self, facts: PublicFacts, noise: float) -> tuple[VotesQuestion, ...]:
        """What one step asks, with noise of ``noise`` times its sensitivity in the first question."""

    @abc.abstractmethod
    def _moves(self, curator: Curator, plan: Plan, wards: Wards, public: torch.Generator) -> Moves:
        """How answers become changes of images; ``public`` is for random numbers that everyone may know."""

    @property
    def generator_form(self) -> GeneratorForm | None:
        """That of the generator, if it is to be published."""
        return self._form if self.config.publish_generator else None

    @property
    def _form(self) -> GeneratorForm:
        config = self.config
        settings = {"length": config.code, "width": config.generator_width, "maps": config.generator_maps}
        return GeneratorForm(architecture="conditional-dcgan", settings=settings)

    def plan(self, facts: PublicFacts, budget: PrivacyBudget) -> Plan:
        """The questions of every step, to all teachers."""
        budget.check_size(facts.size)
        config = self.config
        require_shards(facts, config.teachers_for(facts), "teachers")
        require(config.sigma is None or budget.private, "without privacy there is no noise; leave sigma out")
        if config.sigma is not None:
            noise = config.sigma / self._questions(facts, 1.0)[0].sensitivity
            events = self._events(facts, noise, config.steps or self._affordable(facts, noise, budget))
        else:
            assert config.steps is not None
            steps = config.steps
            noise = calibrate(lambda noise: self._events(facts, noise, steps), budget)
            events = self._events(facts, noise, steps)
            sigma, teachers = noise * self._questions(facts, 1.0)[0].sensitivity, config.teachers_for(facts)
            if sigma > teachers * math.sqrt(steps):  # not even what all agree on, in every step, would be heard
                presets = presets_that_ask_fewer(self, facts, budget, sum(event.count for event in events))
                raise BudgetError(
                    f"{steps:,} steps cannot be paid for with epsilon {budget.epsilon:g}: a sum of {teachers:,} votes "
                    f"would carry noise {sigma:.3g}. Raise epsilon, have more teachers (and records for them), take "
                    f"fewer steps (--steps), or ask about fewer images (--images); {presets}."
                )
        return Plan.make(self, facts, budget, noise, events)

    @property
    def _sums_of_a_vote(self) -> int:
        """Of how many sums a teacher chooses one to be counted in."""
        return 1

    def caution(self, facts: PublicFacts, noise_multiplier: float, events: tuple[GaussianEvent, ...]) -> str | None:
        """That the noise on a sum is more than the votes which it has if teachers choose as they please."""
        sigma = noise_multiplier * self._questions(facts, 1.0)[0].sensitivity
        teachers, sums = self.config.teachers_for(facts), self._sums_of_a_vote
        if sigma <= teachers / sums:
            return None
        if sigma > teachers:
            loud = f"each sum of {teachers:,} votes carries noise {sigma:.3g}, more than all of them together,"
        else:
            loud = (
                f"each count carries noise {sigma:.3g}, more than the {teachers // sums:,} of {teachers:,} votes that "
                f"each of {sums} bins has if teachers do not agree,"
            )
        return (
            f"{loud} and little may be learned in {events[0].count:,} steps; a larger epsilon, more teachers (and "
            "records for them), fewer steps or fewer images would do better"
        )

    def _events(self, facts: PublicFacts, noise: float, steps: int) -> tuple[GaussianEvent, ...]:
        return tuple(question.event(steps) for question in self._questions(facts, noise))

    def _affordable(self, facts: PublicFacts, noise: float, budget: PrivacyBudget) -> int:
        """The most steps that the budget pays for."""

        def cost(steps: int) -> float:
            return spend(self._events(facts, noise, steps), budget.delta).by(budget.accountant)

        if cost(1) > budget.epsilon:
            raise BudgetError(
                f"with sigma {self.config.sigma:g} a single step costs epsilon {cost(1):.4g}, more than the budget "
                f"{budget.epsilon:g}; raise sigma, or leave it out and give steps"
            )
        low, high = 1, _MOST_STEPS
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if cost(middle) <= budget.epsilon else (low, middle - 1)
        return low

    def _codes(self, generator: ConditionalGenerator, classes: int, random: torch.Generator) -> Codes:
        """Where the codes of one step come from."""
        config = self.config
        if not config.same_codes:
            return lambda labels, _: generator.draw(labels, random)
        some = torch.zeros(max(config.batch_size, config.images), dtype=torch.int64)
        numbers = generator.draw(some, random)[:, : config.code]

        def codes(labels: Tensor, each: int) -> Tensor:
            marks = F.one_hot(labels, classes).to(numbers.dtype)
            return torch.cat([numbers[:each].repeat(len(labels) // each, 1), marks], dim=1)

        return codes

    def _synthesise(self, curator: Curator, plan: Plan, execution: Execution, observer: Observer) -> Synthesis:
        config, facts, classes = self.config, plan.facts, len(plan.facts.classes)
        device, random = torch.device(execution.device), torch.Generator().manual_seed(config.seed)
        network_seed, teacher_seed = (int(torch.randint(2**31, (), generator=random)) for _ in range(2))
        generator = self._form.build(facts, seed=network_seed).to(device)
        weights = list(generator.parameters())
        adam = Adam(weights, betas=_BETAS)
        adam.set_rate(config.rate)
        begin, learn = teaching(config, facts, teacher_seed, device)
        wards = curator.appoint(
            config.teachers_for(facts), begin, batch_size=config.batch_size, by_class=config.by_class
        )
        moves, steps = self._moves(curator, plan, wards, random), plan.events[0].count
        taken, codes = torch.zeros((), device=device), self._codes(generator, classes, random)

        def teach() -> None:
            # Images of every class, for teachers to take those of their own records' classes.
            labels = torch.arange(classes).repeat_interleave(config.batch_size)
            with torch.no_grad():
                made = generator(sent(codes(labels, config.batch_size), device))
            made = made.view(classes, config.batch_size, *facts.shape)
            curator.teach(wards, learn, {"made": made, "taken": taken})
            taken.add_(1)

        def look() -> Glimpse:
            return glimpse(settled(generator, torch.Generator().manual_seed(0)), config.per_class)

        observer.phase("teaching teachers", config.pretraining)
        for _ in range(config.pretraining):
            teach()
            observer.step()
        for question in self._questions(facts, plan.noise_multiplier):
            curator.prepay(question, steps)
        observer.phase("training a generator", steps)
        for _ in range(steps):
            for _ in range(config.teacher_steps):
                teach()
            labels = even_labels(config.images, classes, random)
            asked = sent(codes(labels, config.images), device)
            pixels = generator(asked)
            target = pixels.detach() + moves(pixels.detach(), sent(labels, device))
            adam.step(torch.autograd.grad((target - pixels).square().sum(), weights))
            for _ in range(config.generator_steps - 1):  # of an answer that is paid for
                adam.step(torch.autograd.grad((target - generator(asked)).square().sum(), weights))
            codes = self._codes(generator, classes, random)
            observer.step()
            observer.show(look)
        labels = torch.arange(classes).repeat_interleave(config.per_class)
        network = settled(generator, random)
        trained = TrainedGenerator.of(self._form, network) if config.publish_generator else None
        return Synthesis(drawn(network, labels, random), labels, generator=trained)


def teaching(
    config: TeacherConfig, facts: PublicFacts, seed: int, device: torch.device | None = None
) -> tuple[Begin, Learn]:
    """How teachers begin, each with weights of its own, and how one learns: a step of Adam on records against images.

    It is told, beside the images that were ``made [classes, b, c, h, w]``, how many steps have been ``taken []``: all
    teachers take each of them, but those that have no records and stay as they began.

    If all began alike they would agree, at first, on what none of them has learned, and the generator would follow it.
    """
    discriminator = discriminator_of(config, facts)
    names = tuple(discriminator.begin(seed))

    def begin(numbers: range) -> State:
        firsts = [discriminator.begin(seed + number, device) for number in numbers]
        state = {name: torch.stack([first[name] for first in firsts]) for name in names}
        for name in names:
            state |= {f"{kind} {name}": torch.zeros_like(state[name]) for kind in ("mean", "square")}
        return state

    def learn(state: State, images: Tensor, labels: Tensor, public: Public) -> State:
        true = scale(images, facts)
        made = public["made"][labels, torch.arange(len(labels), device=labels.device)]

        def loss(weights: State) -> Tensor:
            said_true, said_made = discriminator(weights, torch.stack([true, made]), labels)
            return F.softplus(-said_true).mean() + F.softplus(said_made).mean()

        with tensor_cores(images.device):
            slopes = grad(loss)({name: state[name] for name in names})
        weights, means, squares = ([state[kind + name] for name in names] for kind in ("", "mean ", "square "))
        down = [slopes[name] for name in names]
        step_of_adam(weights, means, squares, down, taken=public["taken"], rate=config.rate, betas=_BETAS)
        return state

    return begin, learn


def discriminator_of(config: TeacherConfig, facts: PublicFacts) -> ConditionalDiscriminator:
    """The network that every teacher is."""
    return ConditionalDiscriminator(
        facts,
        maps=config.teacher_maps,
        width=config.teacher_width,
        norm=config.teacher_norm,
        label_weight=config.label_weight,
    )


def wishes(discriminator: ConditionalDiscriminator, state: State, pixels: Tensor, labels: Tensor) -> Tensor:
    """How one teacher would change each image ``[n, c, h, w]`` to take it for a true one."""

    def loss(pixels: Tensor) -> Tensor:
        return F.softplus(-discriminator(state, pixels, labels)).mean()

    with tensor_cores(pixels.device):
        return -grad(loss)(pixels)


def claimed_epsilon(events: tuple[GaussianEvent, ...], delta: float) -> float:
    """The epsilon that both published accountants make of such answers on everyone, where they do not look at votes.

    They add up the Renyi divergences of the numbers of a step, which comes to that of all together, and convert the sum
    by Mironov 2017, at orders of their choice.

    >>> round(claimed_epsilon((GaussianEvent(question="votes", sampling_rate=1.0, noise_multiplier=5.0),), 1e-5), 3)
    0.98
    """
    each = sum(event.count / (2 * event.noise_multiplier**2) for event in events)
    return min(each * order + math.log(1 / delta) / (order - 1) for order in (1.1, *range(2, 200)))
