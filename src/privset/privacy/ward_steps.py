"""What wards do together, as steps that a graphics card records: learn from their shards, and speak.

All that is private is in here with them: states, and records. A step is public code for ONE ward, evaluated by
`torch.func.vmap` over as many as are looked at together, and then over the next of them.

A card takes such a step a few times as it is written and then plays back what it did (`privset.recording`), with
whatever its arguments hold by then. So the code must be a function of its arguments: what else it looks at stays as it
was. Random numbers are those of torch's own generators, which are seeded anew before a recording is played back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from privset.errors import ConfigError
from privset.facts import PublicFacts, normalise
from privset.recording import Step

State = dict[str, Tensor]
"""All that a ward is: weights, and what its optimiser remembers; a tensor each."""

Public = Mapping[str, Tensor]
"""What all wards are shown alike: generated images and labels, codes, weights of a generator. Nothing of a record."""

Learn = Callable[[State, Tensor, Tensor, Public], State]
"""(state, images [b, c, h, w] and labels [b] of the ward's own shard, public) -> its state after one step.

It may change tensors of the state in place, and return these: of large ones less is moved then. A function of its
arguments, which never asks a graphics card for a number (as ``item`` does), and is not called again once it is played
back. How many random numbers it draws is the same for every ward."""

Say = Callable[[State, Public], Tensor]
"""(state, public) -> what the ward has to say, of the same shape for every ward. It leaves the state as it is.

Otherwise as `Learn`."""


@dataclasses.dataclass(frozen=True)
class Code:
    """What wards do.

    Attributes:
        work: Public code, a `Learn` or a `Say`.
        names: Of the public values it is told, in their order.
        every: Whether all wards do it; if not, their numbers come before these values.
    """

    work: Callable[..., Any]
    names: tuple[str, ...]
    every: bool

    def told(self, given: tuple[Tensor, ...]) -> tuple[Tensor | None, Public]:
        """The numbers of the wards ``[w]``, or None for all, and the public values."""
        rows, values = (None, given) if self.every else (given[0], given[1:])
        return rows, dict(zip(self.names, values, strict=True))


@dataclasses.dataclass(frozen=True, eq=False)
class Household:
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


def lesson_of(images: Tensor, labels: Tensor, facts: PublicFacts, household: Household, code: Code) -> Step:
    """The step that teaches wards, of records ``[w, b]``, which wards have none ``[w]``, and what `Code.told` takes.

    Guarantee: the state of a ward becomes a function of its state, of the records in its row, of public values and of
    random numbers; those of wards that do not take part stay. What is made of a ward without records is not to be used.
    """

    def lesson(records: Tensor, empty: Tensor, *given: Tensor) -> Tensor:
        rows, public = code.told(given)
        for part, place, state in _portions(household, rows, len(records)):
            shown = shown_to(images, labels, facts, records[part], empty[part])
            with torch.no_grad():
                after = vmap(lambda s, x, y: code.work(s, x, y, public), randomness="different")(state, *shown)
            if {n: (v.shape, v.dtype) for n, v in after.items()} != {n: (v.shape, v.dtype) for n, v in state.items()}:
                raise ConfigError("learning must leave the tensors of a ward's state as many, and of the same form")
            _settle(state, after)
            if rows is not None:  # those were copies
                for name, value in household.states.items():
                    value[place] = state[name]
        return empty

    return lesson


def hearing_of(household: Household, code: Code) -> Step:
    """The step that hears wards: what `Code.told` takes -> what they say ``[w, ...]``.

    Guarantee: row i is a function of ward i alone, of public values and of random numbers, and all rows have one form.
    It shares no memory with a state or an argument.
    """

    def hearing(*given: Tensor) -> Tensor:
        rows, public = code.told(given)
        count, found = len(household.sizes) if rows is None else len(rows), None
        for part, _, states in _portions(household, rows, count):
            said = said_by(code.work, states, public)
            found = said.new_empty(count, *said.shape[1:]) if found is None else found
            if (said.shape[1:], said.dtype) != (found.shape[1:], found.dtype):
                # Added up, it might be counted several times.
                raise ConfigError(
                    "wards must all say something of the same form; `say` must be a function of its arguments"
                )
            found[part] = said
        assert found is not None
        return found

    return hearing


def said_by(say: Say, states: State, public: Public) -> Tensor:
    """What wards of these states say.

    Guarantee: states are as they were, or it is refused: else it could be known who was asked.
    """
    before = [value._version for value in states.values()]
    with torch.no_grad():
        said = vmap(lambda state: say(state, public), randomness="different")(states)
    if before != [value._version for value in states.values()]:
        raise ConfigError("a ward may not change while it speaks; have `say` leave its state as it is")
    return said


def _portions(household: Household, rows: Tensor | None, count: int) -> Iterator[tuple[slice, slice | Tensor, State]]:
    """All wards, or those of the numbers ``rows [count]``, as many at a time as are looked at together.

    Of each portion which of the ``count`` it has, where their states are, and these: of all wards the very ones, of
    some copies.
    """
    for first in range(0, count, household.at_once):
        part = slice(first, min(first + household.at_once, count))
        place = part if rows is None else rows[part]
        yield part, place, {name: value[place] for name, value in household.states.items()}


def shown_to(
    images: Tensor, labels: Tensor, facts: PublicFacts, records: Tensor, empty: Tensor
) -> tuple[Tensor, Tensor]:
    """Of records ``[w, b]``, normalised images ``[w, b, c, h, w]`` and labels ``[w, b]``.

    Guarantee: a row is made of the records in it; that of a ward without records is blank, whatever these are.
    """
    blank = empty[:, None]
    shown = torch.where(blank[..., None, None, None], 0.0, normalise(images[records], facts))
    return shown, torch.where(blank, 0, labels[records])


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
