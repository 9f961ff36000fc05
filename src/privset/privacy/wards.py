"""Networks that are private state: wards of the curator, each taught by its own shard of the records.

Teachers (G-PATE, DataLens) and critics (GS-WGAN) look at records without noise. So they never leave: `Guardian` holds
their shards and their states, only closures of the curator hold the guardian, and a method has a `Wards`, which is a
name. What wards say leaves through the noisy answers to a question alone; to teach them answers nothing.

Every record is put into one shard at most, so that one record more or less changes one of them
(`privset.privacy.shards`). The price is shards of different sizes, some of which may be empty.

What a method gives is public code for ONE ward; `privset.privacy.ward_steps` has many run it, each kept apart.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from privset import processor
from privset.errors import ConfigError
from privset.facts import PublicFacts
from privset.privacy import shards
from privset.privacy.clipping import Tally
from privset.privacy.noise import NoiseSource
from privset.privacy.ward_steps import Code, Household, Learn, Public, Say, State, hearing_of, lesson_of, said_by
from privset.recording import Step, recorded, sent

Begin = Callable[[range], State]
"""Numbers of wards -> their first states, stacked ``[wards, ...]``; known by public seeds."""

_IMAGES_EACH, _IMAGES_EACH_ON_A_CARD = 64, 16
"""Images that a ward is reckoned to look at when it speaks, if it learns from fewer. On a card they are what its memory
is reckoned by, and the fewer parts wards are taken in, the less it waits for the next of many small operations."""

_BEGUN_AT_ONCE = 256
"""Wards whose first states are made together, in memory beside that of all."""


_Steps = dict[str, tuple[Code, Step]]
"""What wards did last, of each kind, as a step that may be played back."""


@dataclasses.dataclass(frozen=True, eq=False)
class Wards:
    """A name for networks that a curator keeps. Nothing of them can be reached from here.

    Attributes:
        count: How many there are.
        batch_size: Records of its own shard that each learns from in a step.
    """

    count: int
    batch_size: int


class Guardian:
    """Holds the records, shards and states of wards. For closures of the curator only: never an attribute of anything.

    Args:
        images: All records' images ``[n, c, h, w]``, 8-bit, on the device.
        labels: Their labels ``[n]``, likewise.
        facts: What is public about them.
        noise: Where shards and the wards' own random numbers come from.
        chunk: Images looked at together; None chooses. What wards draw, beside batches, they draw chunk by chunk.
        tally: Receives what the data holder alone may see.
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        facts: PublicFacts,
        noise: NoiseSource,
        chunk: int | None,
        tally: Tally | None = None,
    ) -> None:
        self._tally = tally or Tally()
        self._images, self._labels, self._facts, self._noise, self._chunk = images, labels, facts, noise, chunk
        self._households: dict[Wards, Household] = {}
        self._steps: dict[Wards, _Steps] = {}
        self._rehearsed: dict[Wards, tuple[object, Tensor]] = {}

    def appoint(self, count: int, begin: Begin, batch_size: int, by_class: bool = False) -> Wards:
        """Put every record into at most one of ``count`` shards and begin a ward for each, whether or not it is empty.

        Guarantee: shards are disjoint, and one record more changes one of them. Unless they are dealt ``by_class``, a
        record's shard is uniform and independent of all other records.
        """
        if count < 1 or batch_size < 1:
            raise ConfigError(f"appoint at least one ward, of at least one record a step, not {count} and {batch_size}")
        random = torch.Generator().manual_seed(int(self._noise.bits(1)[0]) >> 1)
        shard = self._shards(count, by_class)
        taken = shard[shard != shards.NONE]
        sizes = torch.bincount(taken, minlength=count)
        device = self._images.device
        states: State = {}
        first: State = {}
        wards = Wards(count, batch_size)
        at_once = self._at_once(wards)
        step = min(at_once, _BEGUN_AT_ONCE)
        for part in range(0, count, step):
            numbers = range(part, min(part + step, count))
            begun = begin(numbers)
            if any(value.shape[:1] != (len(numbers),) for value in begun.values()):
                raise ConfigError(f"begin must give {len(numbers)} states, stacked along the first axis of each tensor")
            if part == 0:
                _require_room(begun, count, device)
            for name, value in begun.items():
                if part == 0:
                    states[name] = value.new_zeros(count, *value.shape[1:], device=device)
                    first[name] = value[:1].detach().to(device, copy=True)
                states[name][part : part + len(numbers)] = value.detach().to(device)
        self._households[wards] = Household(
            order=shard.argsort(stable=True),
            starts=len(shard) - len(taken) + sizes.cumsum(0) - sizes,
            sizes=sizes,
            states=states,
            begun=first,
            at_once=at_once,
            random=random,
        )
        self._steps[wards] = {}
        self._tally.left_out += len(shard) - len(taken)
        return wards

    def _shards(self, count: int, by_class: bool) -> Tensor:
        """Of every record ``[n]``; of some, if they are dealt by class, `shards.NONE`, which sorts first."""
        if not by_class:
            return shards.drawn(self._noise, len(self._labels), count)
        classes = len(self._facts.classes)
        seats = shards.seats_for(self._facts.size, count, classes)
        return shards.dealt(self._noise, self._labels, count, classes=classes, seats=seats)

    def teach(self, wards: Wards, learn: Learn, public: Public, which: Tensor | None = None) -> None:
        """One step of every ward, or of those of the numbers ``which [k]``, each from a batch of its own shard.

        Guarantee: nothing is answered. The state of a ward is a function of its own shard, of public values and of
        random numbers of its own; a ward without records stays as it began. Where ``learn`` fails, some may be half
        taught, so all of them are dismissed: no one hears them any more.
        """
        household, told = self._of(wards), self._told(which, public)
        steps = self._steps[wards]
        del self._households[wards], self._steps[wards]  # until all are taught
        numbers = torch.arange(wards.count) if which is None else which.cpu()
        idle, begun = numbers[household.sizes[numbers] == 0], {}
        if len(idle):
            idle = sent(idle, self._images.device)
            begun = {name: value[idle] for name, value in household.states.items()}
        code = Code(learn, tuple(public), which is None)
        write = functools.partial(lesson_of, self._images, self._labels, self._facts)
        step = self._kept(steps, "lesson", household, code, write)
        shown = self._drawn(household, wards, numbers)
        with self._dice(household):
            step(*shown, *told)
        for name, value in begun.items():
            household.states[name][idle] = value
        self._households[wards], self._steps[wards] = household, steps

    def hear(self, wards: Wards, say: Say, public: Public, which: Tensor | None = None) -> Iterator[Tensor]:
        """What every ward says, or those of the numbers ``which [k]``: parts ``[w, ...]`` in their order.

        To be used before wards are heard again, which may put other words in the same place.

        Guarantee: row i is a function of ward i, of public values and of random numbers of its own, and all rows of all
        parts have one form. It is private: to be bounded and covered in noise before anyone sees it.
        """
        household = self._of(wards)
        code = Code(say, tuple(public), which is None)
        step, told = self._kept(self._steps[wards], "hearing", household, code, hearing_of), self._told(which, public)
        with self._dice(household):
            said = step(*told)
        yield from said.split(household.at_once)

    def rehearse(self, wards: Wards, say: Say, public: Public) -> Tensor:
        """What a ward that has learned nothing says ``[1, ...]``: public, and of the form of all that wards say.

        It is for the form alone, so the same code is rehearsed again only if public values change theirs. Code whose
        answers have another form for other values gets past this: whoever answers looks at what was said once more.
        """
        household = self._of(wards)
        piece = say, [(name, value.shape, value.dtype) for name, value in public.items()]
        known, said = self._rehearsed.get(wards, (None, None))
        if said is None or known != piece:
            with self._dice(household):
                said = said_by(say, household.begun, public)
            self._rehearsed[wards] = piece, said
        return said

    def _kept(self, steps: _Steps, kind: str, household: Household, code: Code, write: Callable[..., Step]) -> Step:
        """A step of all wards together, which a graphics card records; the last of each kind is kept.

        What is written knows neither of the guardian nor of what keeps it, so that states are gone when it is.
        """
        known, step = steps.get(kind, (None, None))
        if step is None or known != code:
            steps[kind] = code, (step := recorded(write(household, code), self._images.device))
        return step

    def _told(self, which: Tensor | None, public: Public) -> list[Tensor]:
        """What a step is told: numbers of wards, unless it is about all of them, and public values.

        Those of another device would be what they were, where a step is played back.
        """
        device = self._images.device
        if wrong := [name for name, value in public.items() if value.device.type != device.type]:
            raise ConfigError(f"public values must be tensors on {device.type}, where wards are; {wrong[0]} is not")
        some = [] if which is None else [sent(which.cpu(), device)]
        return [*some, *(value.detach() for value in public.values())]

    def _of(self, wards: Wards) -> Household:
        if wards not in self._households:
            raise ConfigError("wards of another curator, or ones that were dismissed since one could not be taught")
        return self._households[wards]

    def _at_once(self, wards: Wards) -> int:
        """As many wards as suit the device; on a card 8 MB an image, more for one that is larger than 32x32.

        That is many times what a lesson takes, so that those that are recorded, each with memory of its own, find room.

        Only of what is public: how wards are divided changes the last digits of all of them, so it may not depend on
        what is free at the moment, and so on how many shards are empty.
        """
        device = self._images.device
        if self._chunk is None and device.type == "cuda":
            pixels = math.prod(self._images.shape[2:])
            most = torch.cuda.mem_get_info(device)[1] * 3 // 4 // int(2**23 * max(1, pixels / 1024))
            images, each = min(20_000, most), _IMAGES_EACH_ON_A_CARD
        else:
            images, each = self._chunk or 4096, _IMAGES_EACH
        return max(1, images // max(wards.batch_size, each))

    def _drawn(self, household: Household, wards: Wards, which: Tensor) -> tuple[Tensor, Tensor]:
        """For each of these wards ``[w]`` random records of its own shard ``[w, b]``, and whether it has none ``[w]``.

        A shard smaller than a batch is gone through again. What an empty one is given is no record of it.
        """
        starts, sizes = household.starts[which], household.sizes[which]
        dice = torch.rand(len(sizes), wards.batch_size, generator=household.random)
        numbers = starts[:, None] + places(sizes.clamp_min(1), dice)
        records = household.order[numbers.clamp_max(len(household.order) - 1)]
        return sent(records, self._images.device), sent(sizes == 0, self._images.device)

    @contextlib.contextmanager
    def _dice(self, household: Household) -> Iterator[None]:
        """Within, torch's own random functions draw from a stream of the wards; outside no one notices.

        Not from the source of the noise, which would be slow: a ward may throw any dice, it is private state, and what
        is proven holds for every throw.
        """
        device, seed = self._images.device, int(torch.randint(2**62, (), generator=household.random))
        index = [device.index or 0] if device.type == "cuda" else []
        with torch.random.fork_rng(devices=index):
            torch.default_generator.manual_seed(seed)
            for number in index:
                torch.cuda.default_generators[number].manual_seed(seed)
            yield


def _require_room(begun: State, count: int, device: torch.device) -> None:
    """Refuse what the system would end halfway, by the states of the first wards; a graphics card says so itself.

    States of all wards have one form, which is public.
    """
    if device.type != "cpu":
        return
    needed, there = count * sum(value[0].nbytes for value in begun.values()), processor.free_memory()
    if needed > there:
        raise ConfigError(
            f"{count:,} critics or teachers take {needed / 2**30:,.1f} GiB of memory for what they learn alone, and "
            f"{there / 2**30:,.1f} are free; appoint fewer (--critics, --teachers), or take a preset with smaller ones"
        )


def places(sizes: Tensor, dice: Tensor) -> Tensor:
    """Random places ``[w, b]`` in shards of these sizes ``[w]``: all of a shard's places before any comes again.

    Every ward has as many dice ``[w, b]``, uniform in [0, 1), as there are places to choose, however large its shard:
    so a record more in one shard leaves what others choose as it was.
    """
    decks = torch.arange(int(sizes.max())).repeat(len(sizes), 1)
    chosen = torch.empty(dice.shape, dtype=torch.int64)
    rows = torch.arange(len(sizes))
    for number in range(dice.shape[1]):
        turn = number % sizes
        drawn = turn + (dice[:, number] * (sizes - turn)).long().clamp_max(sizes - turn - 1)
        here = decks[rows, drawn]
        decks[rows, drawn] = decks[rows, turn]
        decks[rows, turn] = here
        chosen[:, number] = here
    return chosen


def keeping(
    guardian: Guardian,
) -> tuple[Callable[[int, Begin, int, bool], Wards], Callable[[Wards, Learn, Public, Tensor | None], None]]:
    """The functions that appoint and teach: closures, since a bound method would show whose it is."""
    return (
        lambda count, begin, batch_size, by_class: guardian.appoint(count, begin, batch_size, by_class),
        lambda wards, learn, public, which: guardian.teach(wards, learn, public, which),
    )
