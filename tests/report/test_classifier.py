import json

import pytest
from tests.conftest import TINY, facts_for, records_for
from tests.report.test_page import Reader

from privset.data import Dataset
from privset.errors import DataError
from privset.evaluation import evaluate_release
from privset.methods import DpSgd
from privset.pipeline import train
from privset.privacy import PrivacyBudget
from privset.report.page import page, panels
from privset.report.sources import add_evaluations, read_subjects


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return Dataset(facts_for(40), records_for(facts_for(40)), records_for(facts_for(12), seed=9))


def test_a_classifier_has_a_page_of_its_own(tmp_path, dataset: Dataset) -> None:
    budget = PrivacyBudget(epsilon=5.0, accountant="rdp")
    release = train(dataset, method=DpSgd(TINY["dp-sgd"]), budget=budget, out=tmp_path / "model")
    document = evaluate_release(release, dataset).to_json() | {"digest": release.certificate.contents.digest}
    (tmp_path / "evaluation.json").write_text(json.dumps(document))
    (tmp_path / "other.json").write_text(json.dumps(document | {"trained_on": "set"}))

    subjects = add_evaluations(read_subjects([release.path]), [tmp_path / "evaluation.json"])
    names = [panel.name for panel in panels(subjects, [])]
    text = page(subjects).decode()

    assert names == ["classifier", "guarantee", "limits", "budget", "accuracy", "confusion", "use", "record"]
    assert "A classifier of toy" in text
    assert "scattering, recipe as trained: tested on 12 real images" in text
    assert "release.predict(images)" in text
    with pytest.raises(DataError, match="was not trained on it"):
        add_evaluations(subjects, [tmp_path / "other.json"])


def test_beside_a_set_no_one_says_that_it_was_trained_on_synthetic_images(tmp_path, dataset: Dataset, release) -> None:
    budget = PrivacyBudget(epsilon=5.0, accountant="rdp")
    model = train(dataset, method=DpSgd(TINY["dp-sgd"]), budget=budget, out=tmp_path / "model")
    only = "A classifier that was trained on nothing but the synthetic images, tested on real ones."
    both = Reader(page(read_subjects([release, model.path]))).text
    assert only not in both
    assert "Of a published classifier: itself, which was trained on the private records." in both
    assert only in Reader(page(read_subjects([release]))).text
