"""Sentences with which settings are refused that no method can do with."""

import dataclasses
import math

import pytest
from tests.conftest import TINY

from privset.errors import ConfigError
from privset.methods.settings import FASTEST

RATES = [
    (method, field.name)
    for method, config in TINY.items()
    for field in dataclasses.fields(config)
    if field.name.endswith("rate")
]


def test_every_method_learns_at_some_rate():
    assert {method for method, _ in RATES} == set(TINY)


@pytest.mark.parametrize(("method", "name"), RATES)
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.0, "must be a positive number"),
        (-1.0, "must be a positive number"),
        (math.inf, "must be a positive number"),
        (math.nan, "must be a positive number"),
        (2 * FASTEST, "must be at most 10,000, not 20000: nothing is learned so fast"),
    ],
)
def test_rates_at_which_nothing_is_learned_are_refused(method, name, value, words):
    with pytest.raises(ConfigError, match=f"^{name.replace('_', '-')} {words}"):
        dataclasses.replace(TINY[method], **{name: value})
    dataclasses.replace(TINY[method], **{name: FASTEST})
