import dataclasses

import pytest
from tests.conftest import TINY, facts_for, records_for

from privset.data import Dataset
from privset.errors import ConfigError
from privset.methods import Moments
from privset.pipeline import measure
from privset.privacy import PrivacyBudget
from privset.release import NoisyStatistics, distil, verify

BUDGET = PrivacyBudget(epsilon=5.0, accountant="rdp")


@pytest.fixture(scope="module")
def statistics(tmp_path_factory):
    out = tmp_path_factory.mktemp("measured") / "statistics"
    facts = facts_for(40)
    dataset = Dataset(facts, records_for(facts), records_for(facts_for(12), seed=9))
    return measure(dataset, method=Moments(TINY["moments"]), budget=BUDGET, out=out)


def test_sets_are_distilled_from_what_was_verified_not_from_what_is_in_memory(statistics, tmp_path):
    honest = distil(statistics, out=tmp_path / "honest")
    other = NoisyStatistics({name: value + 1 for name, value in statistics.statistics.tensors.items()})
    made = distil(dataclasses.replace(statistics, statistics=other), out=tmp_path / "set")
    assert made.set.digest() == honest.set.digest()
    assert made.certificate.source == honest.certificate.source
    assert verify(made.path, source=statistics.path).ok


@pytest.mark.parametrize("settings", [{"per_class": "5"}, {"per_class": 2.5}, {"image_rate": None}, {"seed": True}])
def test_settings_of_another_kind_are_refused(statistics, tmp_path, settings):
    (name,) = settings
    with pytest.raises(ConfigError, match=f"{name.replace('_', '-')} cannot be .*valid"):
        distil(statistics, out=tmp_path / "set", **settings)
    assert list(tmp_path.iterdir()) == []
