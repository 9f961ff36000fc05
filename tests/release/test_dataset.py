from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch.utils.data import DataLoader, Dataset

from privset.facts import normalise
from privset.methods.plan import Plan
from privset.release import load


@pytest.fixture(params=[False, True], ids=["8-bit", "floats"])
def made(request: Any, tmp_path: Path, plan: Plan, workshop: Any):
    return load(workshop.publish(tmp_path / "set", plan, workshop.set(keep_floats=request.param)))


def test_it_is_a_dataset_of_images_and_labels(made) -> None:
    data = made.dataset()

    assert issubclass(type(data), Dataset)
    assert len(data) == 12
    image, label = data[5]
    assert image.dtype == torch.float32
    assert image.shape == (1, 8, 8)
    assert isinstance(label, int)
    assert label == int(made.set.labels[5])
    assert data.classes == ["zero", "one", "two"]
    assert data.class_to_idx["two"] == 2
    assert [label for _, label in data] == data.targets.tolist()
    batch, labels = next(iter(DataLoader(data, batch_size=5)))
    assert batch.shape == (5, 1, 8, 8)
    assert labels.dtype == torch.int64


def test_values_are_pixels_in_0_to_1_and_normalised_on_request(made) -> None:
    facts = made.set.facts
    raw, ready = made.dataset(), made.dataset(normalised=True)
    if made.set.pixel_form == "8-bit":
        assert torch.equal(raw.images, made.set.images / 255)
        assert torch.equal(ready.images, normalise(made.set.images, facts))
    else:
        assert float(raw.images.max()) > 1  # not cut
        assert torch.equal(ready.images, made.set.images)
    mean, std = torch.tensor(facts.mean), torch.tensor(facts.std)
    assert torch.allclose((raw.images - mean) / std, ready.images, atol=1e-5)


def test_the_transform_is_applied_to_each_image(made) -> None:
    data = made.dataset(lambda image: image.flip(-1) + 1)

    assert torch.equal(data[3][0], made.dataset()[3][0].flip(-1) + 1)


def test_arrays_fit_scikit_learn(made) -> None:
    images, labels = made.to_numpy()
    assert images.shape == (12, 64)
    assert images.dtype == np.float32
    model = LogisticRegression(C=1e6, max_iter=2000).fit(images, labels)
    assert model.score(images, labels) == 1.0
    assert model.classes_.tolist() == [0, 1, 2]
    assert made.to_numpy(flat=False)[0].shape == (12, 1, 8, 8)
    assert np.allclose(made.to_numpy(normalised=True)[0], (images - 0.25) / 0.5, atol=1e-5)
