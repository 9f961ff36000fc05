import hashlib
import math

import pytest

from privset.release.statement import NOT_ACCOUNTED, best_guess, rounded_up, statement_of


def statement(**changes: object) -> str:
    usual: dict[str, object] = {
        "private": True,
        "seeded": False,
        "epsilon_budgeted": 1.0,
        "epsilon_spent": 0.99987,
        "delta": 1e-5,
        "holding": "set",
        "count": 200,
        "records": 60_000,
        "data": "mnist",
    }
    return statement_of(**(usual | changes))  # type: ignore[arg-type]


def test_wording_of_version_1_is_frozen() -> None:
    assert statement() == (
        'This release holds 200 synthetic images made from the 60,000 private records of "mnist". It is '
        "differentially private with epsilon 0.9999 and delta 1e-05, where neighbouring data sets differ "
        "by adding or removing one record. In plain words: had any one record been left out, or one more "
        "been put in, every possible outcome would have been as likely, to within a factor of e^0.9999 "
        "and except for a probability of 1e-05. So someone who wants to know whether a certain record was "
        "used, and would otherwise have to toss a coin, can guess right with a probability of at most "
        "73.11% by studying this release, whatever else they know and however much they compute. What the "
        "guarantee does not cover is listed with it."
    )
    assert "worst-case bound is weak" in statement(epsilon_spent=9.998)
    # Changing a word makes every certificate already issued fail: that needs a new version of the format.
    texts = [
        *NOT_ACCOUNTED[:8],
        statement(epsilon_spent=9.998),
        statement(private=False, seeded=True),
        statement(private=False, epsilon_budgeted=math.inf, epsilon_spent=math.inf),
        statement(private=False, seeded=True, epsilon_budgeted=math.inf, epsilon_spent=math.inf),
        *(
            statement(holding=holding, **kind)
            for holding in ("statistics", "distilled set")
            for kind in (
                {},
                {"epsilon_spent": 9.998},
                {"private": False, "seeded": True},
                {"private": False, "epsilon_budgeted": math.inf, "epsilon_spent": math.inf},
            )
        ),
    ]
    assert hashlib.sha256("\n".join(texts).encode()).hexdigest() == FROZEN


FROZEN = "8fba2142e892ac35c667fe8566a90fb37915b9bbcbd225c55e005c762663b726"


def test_statistics_and_all_that_is_distilled_from_them_are_said_to_cost_one_epsilon() -> None:
    measured, distilled = statement(holding="statistics", count=5120), statement(holding="distilled set")

    assert measured.startswith('This release holds 5,120 numbers measured on the 60,000 private records of "mnist".')
    assert "covers these numbers and every set distilled from them, all together." in measured
    assert distilled.startswith(
        'This release holds 200 synthetic images distilled from statistics of the 60,000 private records of "mnist".'
    )
    assert "covers them, this set and every other set distilled from them, all together." in distilled
    assert "its numbers may reveal them" in statement(holding="statistics", private=False, seeded=True)


def test_no_guarantee_is_said_first() -> None:
    infinite = statement(private=False, epsilon_budgeted=math.inf, epsilon_spent=math.inf)
    seeded = statement(private=False, seeded=True)

    assert infinite.startswith("NOT PRIVATE. No privacy budget: epsilon is inf")
    assert seeded.startswith("NOT PRIVATE. Seeded noise: not private.")
    assert "does not hold here" in seeded


@pytest.mark.parametrize("value", [0.99987, 9.99951, 123456.7, 1e-7, 10.0, 0.1 + 0.2])
def test_printed_epsilon_is_still_a_bound(value: float) -> None:
    assert value <= float(rounded_up(value)) <= value * 1.001


def test_best_guess_is_between_a_coin_and_certainty() -> None:
    assert best_guess(0.0, 0.0) == 0.5
    assert best_guess(0.0, 1.0) == 1.0
    assert best_guess(1000.0, 0.1) == 1.0
    assert "at most 99.9955% by" in statement(epsilon_spent=10.0)
    assert "practically 100% by" in statement(epsilon_spent=50.0)
