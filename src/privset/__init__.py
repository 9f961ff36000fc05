"""Publish a small synthetic image set in place of private images, with a differential-privacy guarantee.

The shortest way from private records to a release that can be handed out::

    import privset

    release = privset.generate(
        "digits",
        method=privset.Psg(privset.PsgConfig.small(per_class=10)),
        budget=privset.PrivacyBudget(epsilon=10),
        out="release",
    )
    print(release.certificate.statement)
    print(privset.evaluate(release, "digits").mean)

Or ask the records once, and make as many sets from the answers as you like, anywhere::

    privset.measure("digits", budget=privset.PrivacyBudget(epsilon=1), out="statistics")
    privset.distil("statistics", per_class=50, out="set")
"""

import os

# Before torch is loaded, which reads it then. Threads that wait for each other otherwise keep their cores busy for so
# long that, where another program wants one of them, all is many times slower; having turned a while they sleep.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")

from privset import continual, processor
from privset.data import Dataset, Records, facts_of
from privset.data import load as load_data
from privset.errors import BudgetError, ConfigError, DataError, InUseError, PrivsetError, ReleaseError
from privset.evaluation import RECIPES, Evaluation, evaluate_along, evaluate_noise, evaluate_real
from privset.evaluation import evaluate_release as evaluate
from privset.exports import export
from privset.facts import PublicFacts
from privset.methods import (
    METHODS,
    DataLens,
    DataLensConfig,
    DpCgan,
    DpCganConfig,
    DpMerf,
    DpMerfConfig,
    DpSgd,
    DpSgdConfig,
    DpSinkhorn,
    DpSinkhornConfig,
    Execution,
    GPate,
    GPateConfig,
    GsWgan,
    GsWganConfig,
    MeasuringMethod,
    Method,
    MethodConfig,
    Moments,
    MomentsConfig,
    Plan,
    Psg,
    PsgConfig,
    PsgPrior,
    PsgPriorConfig,
    SetConfig,
    SetMethod,
    TrainingMethod,
)
from privset.observer import Glimpse, Observer, Observers
from privset.pipeline import generate, measure, plan, train
from privset.privacy import BudgetExceeded, NoiseSource, PrivacyBudget, Tally, seeded_noise
from privset.rehearsal import Rehearsal, rehearse
from privset.release import (
    Certificate,
    Classifier,
    ClassifierRelease,
    Generator,
    Release,
    StatisticsRelease,
    SyntheticSet,
    Verification,
    distil,
    load_classifier,
    load_statistics,
    merge,
    sample,
    verify,
)
from privset.release import load_published as load
from privset.version import __version__

processor.keep_memory()

__all__ = [
    "METHODS",
    "RECIPES",
    "BudgetError",
    "BudgetExceeded",
    "Certificate",
    "Classifier",
    "ClassifierRelease",
    "ConfigError",
    "DataError",
    "DataLens",
    "DataLensConfig",
    "Dataset",
    "DpCgan",
    "DpCganConfig",
    "DpMerf",
    "DpMerfConfig",
    "DpSgd",
    "DpSgdConfig",
    "DpSinkhorn",
    "DpSinkhornConfig",
    "Evaluation",
    "Execution",
    "GPate",
    "GPateConfig",
    "Generator",
    "Glimpse",
    "GsWgan",
    "GsWganConfig",
    "InUseError",
    "MeasuringMethod",
    "Method",
    "MethodConfig",
    "Moments",
    "MomentsConfig",
    "NoiseSource",
    "Observer",
    "Observers",
    "Plan",
    "PrivacyBudget",
    "PrivsetError",
    "Psg",
    "PsgConfig",
    "PsgPrior",
    "PsgPriorConfig",
    "PublicFacts",
    "Records",
    "Rehearsal",
    "Release",
    "ReleaseError",
    "SetConfig",
    "SetMethod",
    "StatisticsRelease",
    "SyntheticSet",
    "Tally",
    "TrainingMethod",
    "Verification",
    "__version__",
    "continual",
    "distil",
    "evaluate",
    "evaluate_along",
    "evaluate_noise",
    "evaluate_real",
    "export",
    "facts_of",
    "generate",
    "load",
    "load_classifier",
    "load_data",
    "load_statistics",
    "measure",
    "merge",
    "plan",
    "rehearse",
    "sample",
    "seeded_noise",
    "train",
    "verify",
]
