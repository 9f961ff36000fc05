import dataclasses
import itertools

import pytest

from privset.errors import ConfigError
from privset.evaluation.recipes import FULL_SIZE, RECIPES, Recipe, fit_recipe


@pytest.mark.parametrize(
    ("name", "channels", "images_per_class", "epochs", "full_rate", "augment"),
    [
        ("paper", 1, 10, 1001, 502, True),
        ("paper", 3, 10, 301, 152, False),
        ("paper", 1, 6000, 41, 22, True),
        ("paper", 3, 5000, 41, 22, False),
        ("paper", 1, FULL_SIZE, 1001, 502, True),
        ("quick", 1, 10, 300, 152, True),
        ("quick", 3, 10, 300, 152, False),
        ("quick", 1, 6000, 40, 22, True),
        ("plain", 1, 10, 300, 152, False),
        ("plain", 3, 5000, 40, 22, False),
    ],
)
def test_published_schedules(
    name: str, channels: int, images_per_class: float, epochs: int, full_rate: int, augment: bool
) -> None:
    recipe = fit_recipe(name, channels=channels, images_per_class=images_per_class)

    assert recipe == Recipe(
        name=name,
        epochs=epochs,
        full_rate_epochs=full_rate,
        augment=augment,
        learning_rate=0.01,
        momentum=0.9,
        weight_decay=5e-4,
        batch_size=256,
        half_width=images_per_class > FULL_SIZE,
    )


def test_only_sets_of_full_size_are_learned_from_in_half_width_and_one_recipe_has_none() -> None:
    for name in RECIPES:
        small, large = (fit_recipe(name, channels=1, images_per_class=size) for size in (FULL_SIZE, FULL_SIZE + 1))
        assert (small.half_width, large.half_width) == (False, name != "float32")
    paper, float32 = (fit_recipe(name, channels=1, images_per_class=6000) for name in ("paper", "float32"))
    assert float32 == dataclasses.replace(paper, name="float32", half_width=False)


@pytest.mark.parametrize("channels", [1, 3])
def test_the_text_of_the_paper_crops_and_scales_images_of_any_kind(channels: int) -> None:
    recipe = fit_recipe("stated", channels=channels, images_per_class=20)

    quick = fit_recipe("quick", channels=channels, images_per_class=20)
    assert recipe == dataclasses.replace(quick, name="stated", augment=True, rotate=False)
    assert all(fit_recipe(other, channels=1, images_per_class=20).rotate for other in ("paper", "quick", "long"))


def test_recipes_are_named_as_they_are_registered() -> None:
    for name in RECIPES:
        assert fit_recipe(name, channels=1, images_per_class=1).name == name


def test_an_unknown_recipe_is_refused_with_a_suggestion() -> None:
    with pytest.raises(
        ConfigError, match=r"'papper'\. Did you mean paper\? Known: float32, long, paper, plain, quick, stated"
    ):
        fit_recipe("papper", channels=1, images_per_class=1)


@pytest.mark.parametrize(
    "change",
    [{"epochs": 0}, {"batch_size": 0}, {"learning_rate": 0.0}, {"momentum": 1.0}, {"weight_decay": -1.0}],
)
def test_impossible_settings_are_refused(change: dict[str, float]) -> None:
    settings: dict = {"name": "odd", "epochs": 1, "full_rate_epochs": 1, "augment": False} | change
    with pytest.raises(ConfigError, match="recipe odd"):
        Recipe(**settings)


def test_the_long_recipe_is_the_same_for_grey_and_for_colour_and_falls_to_nothing():
    grey, colour = (fit_recipe("long", channels=channels, images_per_class=50) for channels in (1, 3))
    assert grey == colour
    assert grey.mixup
    assert grey.augment
    rates = [grey.rate(epoch) for epoch in range(grey.epochs)]
    assert rates[0] == grey.learning_rate
    assert all(later < earlier for earlier, later in itertools.pairwise(rates))
    assert rates[-1] < 1e-4 * grey.learning_rate
    assert not any(grey.restarts(epoch) for epoch in range(grey.epochs))
