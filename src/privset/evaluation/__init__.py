"""Is it useful: classifiers trained on a set and tested on real images, beside real data and noise."""

from __future__ import annotations

from privset.evaluation.along import Point, evaluate_along, figure_along, points_along
from privset.evaluation.protocol import evaluate, evaluate_classifier, evaluate_release
from privset.evaluation.recipes import RECIPES, Recipe
from privset.evaluation.references import evaluate_noise, evaluate_real
from privset.evaluation.scores import AS_TRAINED, Evaluation

__all__ = [
    "AS_TRAINED",
    "RECIPES",
    "Evaluation",
    "Point",
    "Recipe",
    "evaluate",
    "evaluate_along",
    "evaluate_classifier",
    "evaluate_noise",
    "evaluate_real",
    "evaluate_release",
    "figure_along",
    "points_along",
]
