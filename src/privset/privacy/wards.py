"""Networks that are private state: wards of the curator, each taught by its own shard of the records.

Teachers (G-PATE, DataLens) and critics (GS-WGAN) look at records without noise. So they never leave: `Guardian` holds
their shards and their states, only closures of the curator hold the guardian, and a method has a `Wards`, which is a
name. What wards say leaves through the noisy answers to a question alone; to teach them answers nothing.

Every record is put into a shard by a draw of its own, independent of all other records. So one record more or less
changes one shard by that record and moves no other. A shuffled list cut into equal pieces has not got this property:
one record more moves the borders of all pieces, and then every ward may differ. The price is shards of different sizes,
some of which may be empty.

What a method gives is public code for ONE ward, evaluated by `torch.func.vmap` over many, which keeps them apart.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor
from torch.func import vmap

from privset.errors import ConfigError
from privset.facts import PublicFacts, normalise
from privset.privacy.noise import NoiseSource
from privset.recording import sent

State = dict[str, Tensor]
"""All that a ward is: weights, and what its optimiser remembers; a tensor each."""

Public = Mapping[str, Tensor]
"""What all wards are shown alike: generated images and labels, codes, weights of a generator. Nothing of a record."""

Begin = Callable[[range], State]
"""Numbers of wards -> their first states, stacked ``[wards, ...]``; known by public seeds."""

Learn = Callable[[State, Tensor, Tensor, Public], State]
"""(state, images [b, c, h, w] and labels [b] of the ward's own shard, public) -> its state after one step.

It may change tensors of the state in place, and return these: of large ones less is moved then."""

Say = Callable[[State, Public], Tensor]
"""(state, public) -> what the ward has to say, of the same shape for every ward. It leaves the state as it is."""

_Part = slice | Tensor
"""Wards that are looked at together: a row of neighbours, whose states stay where they lie, or any, by number."""

_IMAGES_EACH, _IMAGES_EACH_ON_A_CARD = 64, 16
"""Images that a ward is reckoned to look at when it speaks, if it learns from fewer. On a card they are what its memory
is reckoned by, and the fewer parts wards are taken in, the less it waits for the next of many small operations."""

_BEGUN_AT_ONCE = 256
"""Wards whose first states are made together, in memory beside that of all."""


@dataclasses.dataclass(frozen=True, eq=False)
class Wards:
    """A name for networks that a curator keeps. Nothing of them can be reached from here.

    Attributes:
        count: How many there are.
        batch_size: Records of its own shard that each learns from in a step.
    """

    count: int
    batch_size: int


@dataclasses.dataclass(frozen=True, eq=False)
class _Household:
    """What only the guardian knows of its wards: shards ``[records]``, ``[wards]`` and states ``[wards, ...]``.

    And what anyone could know: how the first of them began ``[1, ...]``, and how many are looked at together.
    """

    order: Tensor
    starts: Tensor
    sizes: Tensor
    states: State
    begun: State
    at_once: int
    random: torch.Generator


class Guardian:
    """Holds the records, shards and states of wards. For closures of the curator only: never an attribute of anything.

    Args:
        images: All records' images ``[n, c, h, w]``, 8-bit, on the device.
        labels: Their labels ``[n]``, likewise.
        facts: What is public about them.
        noise: Where shards and the wards' own random numbers come from.
        chunk: Images looked at together; None chooses. Wards draw their dice chunk by chunk.
    """

    def __init__(
        self, images: Tensor, labels: Tensor, facts: PublicFacts, noise: NoiseSource, chunk: int | None
    ) -> None:
        self._images, self._labels, self._facts, self._noise, self._chunk = images, labels, facts, noise, chunk
        self._households: dict[Wards, _Household] = {}
        self._rehearsed: dict[Wards, tuple[object, Tensor]] = {}

    def appoint(self, count: int, begin: Begin, batch_size: int) -> Wards:
        """Put every record into one of ``count`` shards and begin a ward for each, whether or not it is empty.

        Guarantee: shards are disjoint, and a record's shard is uniform and independent of all other records.
        """
        if count < 1 or batch_size < 1:
            raise ConfigError(f"appoint at least one ward, of at least one record a step, not {count} and {batch_size}")
        random = torch.Generator().manual_seed(int(self._noise.bits(1)[0]) >> 1)
        shard = torch.from_numpy(self._noise.integers(count, len(self._labels)))
        sizes = torch.bincount(shard, minlength=count)
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
            for name, value in begun.items():
                if part == 0:
                    states[name] = value.new_zeros(count, *value.shape[1:], device=device)
                    first[name] = value[:1].detach().to(device, copy=True)
                states[name][part : part + len(numbers)] = value.detach().to(device)
        self._households[wards] = _Household(
            order=shard.argsort(stable=True),
            starts=sizes.cumsum(0) - sizes,
            sizes=sizes,
            states=states,
            begun=first,
            at_once=at_once,
            random=random,
        )
        return wards

    def teach(self, wards: Wards, learn: Learn, public: Public, which: Tensor | None = None) -> None:
        """One step of every ward, or of those of the numbers ``which [k]``, each from a batch of its own shard.

        Guarantee: nothing is answered. The state of a ward is a function of its own shard, of public values and of
        random numbers of its own; a ward without records stays as it began. Where ``learn`` fails, some may be half
        taught, so all of them are dismissed: no one hears them any more.
        """
        household = self._of(wards)
        del self._households[wards]  # until all are taught
        for part in self._parts(household, which):
            rows = self._rows(part)
            state = {name: value[rows] for name, value in household.states.items()}
            idle, begun = (household.sizes[part] == 0).nonzero()[:, 0], {}
            if len(idle):
                idle = sent(idle, self._images.device)
                begun = {name: value[idle] for name, value in state.items()}
            images, labels = self._batches(household, wards, part)
            with torch.no_grad(), self._dice(household):
                after = vmap(lambda s, x, y: learn(s, x, y, public), randomness="different")(state, images, labels)
            if {n: (v.shape, v.dtype) for n, v in after.items()} != {n: (v.shape, v.dtype) for n, v in state.items()}:
                raise ConfigError("learning must leave the tensors of a ward's state as many, and of the same form")
            _settle(state, after)
            for name, value in begun.items():
                state[name][idle] = value
            if not isinstance(rows, slice):  # those were copies
                for name, value in household.states.items():
                    value[rows] = state[name]
        self._households[wards] = household

    def hear(self, wards: Wards, say: Say, public: Public, which: Tensor | None = None) -> Iterator[Tensor]:
        """What every ward says, or those of the numbers ``which [k]``: parts ``[w, ...]`` in their order.

        Guarantee: row i is a function of ward i, of public values and of random numbers of its own, and all rows of all
        parts have one form. It is private: to be bounded and covered in noise before anyone sees it.
        """
        household, form = self._of(wards), None
        for part in self._parts(household, which):
            rows = self._rows(part)
            said = self._said(household, say, {name: value[rows] for name, value in household.states.items()}, public)
            form = form or (said.shape[1:], said.dtype)
            if form != (said.shape[1:], said.dtype):  # added up, it might be counted several times
                raise ConfigError(
                    "wards must all say something of the same form; `say` must be a function of its arguments"
                )
            yield said

    def rehearse(self, wards: Wards, say: Say, public: Public) -> Tensor:
        """What a ward that has learned nothing says ``[1, ...]``: public, and of the form of all that wards say.

        It is for the form alone, so the same code is rehearsed again only if public values change theirs. Code whose
        answers have another form for other values gets past this: whoever answers looks at what was said once more.
        """
        household = self._of(wards)
        piece = say, [(name, value.shape, value.dtype) for name, value in public.items()]
        known, said = self._rehearsed.get(wards, (None, None))
        if said is None or known != piece:
            said = self._said(household, say, household.begun, public)
            self._rehearsed[wards] = piece, said
        return said

    def _said(self, household: _Household, say: Say, states: State, public: Public) -> Tensor:
        """What wards of these states say; that they may not change, lest it be known who was asked."""
        before = [value._version for value in states.values()]
        with torch.no_grad(), self._dice(household):
            said = vmap(lambda state: say(state, public), randomness="different")(states)
        if before != [value._version for value in states.values()]:
            raise ConfigError("a ward may not change while it speaks; have `say` leave its state as it is")
        return said

    def _of(self, wards: Wards) -> _Household:
        if wards not in self._households:
            raise ConfigError("wards of another curator, or ones that were dismissed since one could not be taught")
        return self._households[wards]

    def _at_once(self, wards: Wards) -> int:
        """As many wards as suit the device; on a card 8 MB an image, more for one that is larger than 32x32.

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

    def _parts(self, household: _Household, which: Tensor | None) -> Sequence[_Part]:
        step, count = household.at_once, len(household.sizes)
        if which is not None:
            return which.cpu().split(step)
        return [slice(first, min(first + step, count)) for first in range(0, count, step)]

    def _rows(self, part: _Part) -> _Part:
        """The part, to look up states by on their device."""
        return part if isinstance(part, slice) else sent(part, self._images.device)

    def _batches(self, household: _Household, wards: Wards, part: _Part) -> tuple[Tensor, Tensor]:
        """Normalised images ``[w, b, c, h, w]`` and labels ``[w, b]``: for each ward a random part of its own shard.

        A shard smaller than a batch is gone through again. A ward without records is shown blank images, never those
        of another, and what it makes of them is thrown away.
        """
        starts, sizes = household.starts[part], household.sizes[part]
        dice = torch.rand(len(sizes), wards.batch_size, generator=household.random)
        numbers = starts[:, None] + places(sizes.clamp_min(1), dice)
        records = sent(household.order[numbers.clamp_max(len(household.order) - 1)], self._images.device)
        empty = sent(sizes == 0, self._images.device)[:, None]
        images = normalise(self._images[records], self._facts)
        images = torch.where(empty[..., None, None, None], 0.0, images)
        return images, torch.where(empty, 0, self._labels[records])

    @contextlib.contextmanager
    def _dice(self, household: _Household) -> Iterator[None]:
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


def _settle(state: State, after: State) -> None:
    """Have a state be what wards became; what they changed in place is so already.

    A tensor that was part of the state under another name is copied first, lest it be overwritten before it is read.
    """
    own = {value.untyped_storage().data_ptr() for value in state.values()}
    made = {name: value for name, value in after.items() if not _same_place(value, state[name])}
    made = {name: value.clone() if value.untyped_storage().data_ptr() in own else value for name, value in made.items()}
    for name, value in made.items():
        state[name].copy_(value)


def _same_place(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of one shape and dtype are the same numbers in memory."""
    return one.data_ptr() == other.data_ptr() and one.stride() == other.stride()


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
) -> tuple[Callable[[int, Begin, int], Wards], Callable[[Wards, Learn, Public, Tensor | None], None]]:
    """The functions that appoint and teach: closures, since a bound method would show whose it is."""
    return (
        lambda count, begin, batch_size: guardian.appoint(count, begin, batch_size),
        lambda wards, learn, public, which: guardian.teach(wards, learn, public, which),
    )
