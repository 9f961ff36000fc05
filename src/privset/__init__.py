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
"""

from privset.data import Dataset as Dataset
from privset.data import Records as Records
from privset.data import facts_of as facts_of
from privset.data import load as load_data
from privset.errors import BudgetError as BudgetError
from privset.errors import ConfigError as ConfigError
from privset.errors import DataError as DataError
from privset.errors import PrivsetError as PrivsetError
from privset.errors import ReleaseError as ReleaseError
from privset.evaluation import RECIPES as RECIPES
from privset.evaluation import Evaluation as Evaluation
from privset.evaluation import evaluate_noise as evaluate_noise
from privset.evaluation import evaluate_real as evaluate_real
from privset.evaluation import evaluate_release as evaluate
from privset.facts import PublicFacts as PublicFacts
from privset.methods import METHODS as METHODS
from privset.methods import Execution as Execution
from privset.methods import Method as Method
from privset.methods import MethodConfig as MethodConfig
from privset.methods import Plan as Plan
from privset.methods import Psg as Psg
from privset.methods import PsgConfig as PsgConfig
from privset.observer import Observer as Observer
from privset.pipeline import generate as generate
from privset.pipeline import plan as plan
from privset.privacy import BudgetExceeded as BudgetExceeded
from privset.privacy import NoiseSource as NoiseSource
from privset.privacy import PrivacyBudget as PrivacyBudget
from privset.privacy import Tally as Tally
from privset.privacy import seeded_noise as seeded_noise
from privset.release import Certificate as Certificate
from privset.release import Release as Release
from privset.release import SyntheticSet as SyntheticSet
from privset.release import Verification as Verification
from privset.release import load as load
from privset.release import verify as verify
from privset.version import __version__ as __version__
