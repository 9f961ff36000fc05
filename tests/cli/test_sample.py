"""`privset sample` as a user types it, after a whole run of `privset generate`."""

import json

import numpy as np
import pytest

from privset.cli import main

TINY = {
    "psg-prior": "--runs 1 --outer-steps 1 --batches-per-step 2 --batch-size 16 --width 4 --code 3 --generator-width 4",
    "dp-merf": "--waves 6 --width 5 --steps 2 --batch-size 8",
    "dp-cgan": "--steps 2 --batch-size 60 --code 3 --width 4",
    "gs-wgan": "--critics 4 --steps 2 --taught 1 --critic-steps 1 --warm-up 1 --critic-batch-size 4 --batch-size 4 "
    "--width 4 --critic-width 2",
    "dp-sinkhorn": "--steps 2 --batch-size 60 --width 4 --code 3",
    "g-pate": "--teachers 60 --batch-size 4 --images 3 --steps 2 --projections 2 --code 3 --generator-width 5 "
    "--generator-maps 2 --teacher-width 4 --teacher-maps 2",
    "datalens": "--teachers 60 --batch-size 4 --images 3 --steps 2 --top 3 --pretraining 1 --code 3 "
    "--generator-width 5 --generator-maps 2 --teacher-width 4 --teacher-maps 2",
}


@pytest.fixture(scope="module", params=TINY)
def release(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    rng = np.random.default_rng(0)
    np.savez(folder / "own.npz", x=rng.integers(0, 255, (60, 8, 8), dtype=np.uint8), y=np.arange(60) % 3)
    words = ["--method", request.param, "--epsilon", "5", "--accountant", "rdp", *TINY[request.param].split()]
    out = folder / "release"
    assert main(["generate", str(folder / "own.npz"), *words, "--per-class", "2", "--out", str(out)]) == 0
    (folder / "own.npz").unlink()  # nothing below needs it
    return out


def test_images_are_drawn_without_data_and_verified(call, release, tmp_path):
    code, out, err = call("sample", release, "--per-class", 4, "--seed", 3, "--out", tmp_path / "drawn")
    assert code == 0, err
    assert "12 synthetic images drawn from a generator" in out
    code, out, _ = call("verify", tmp_path / "drawn", "--source", release, "--json")
    assert code == 0, out
    assert call("verify", release)[0] == 0
    text = (tmp_path / "drawn" / "config.toml").read_text()
    assert "per-class = 4\nseed = 3\n" in text
    words = ["sample", release, "--config", tmp_path / "drawn" / "config.toml", "--out", tmp_path / "again", "--json"]
    code, out, _ = call(*words)
    assert code == 0
    assert json.loads(out)["images"] == 12
    sets = [(tmp_path / name / "set.safetensors").read_bytes() for name in ("drawn", "again")]
    assert sets[0] == sets[1]


@pytest.mark.parametrize("release", ["dp-merf"], indirect=True)
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--per-class", "0"], "per-class must be at least 1"),
        (["--device", "tpu"], "device must be cpu, cuda or cuda:N"),
        (["--epsilon", "1"], "--epsilon"),
    ],
)
def test_what_cannot_be_drawn_is_refused_with_a_sentence(call, release, tmp_path, words, sentence):
    code, out, err = call("sample", release, "--out", tmp_path / "drawn", *words)
    assert code == 2
    assert out == ""
    assert sentence in " ".join(err.replace("│", " ").split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("release", ["dp-merf"], indirect=True)
def test_a_set_that_was_drawn_is_refused_with_where_to_draw_from(call, release, tmp_path):
    assert call("sample", release, "--per-class", 1, "--out", tmp_path / "drawn")[0] == 0
    code, _, err = call("sample", tmp_path / "drawn", "--out", tmp_path / "more")
    assert code == 2
    seal = json.loads((release / "certificate.json").read_bytes())["seal"]
    assert "was itself drawn from a generator, and does not hold it" in err
    assert f"whose certificate has the seal {seal}" in err


def test_a_release_whose_generator_was_not_published_is_refused_with_why(call, tmp_path):
    words = ["--method", "dp-merf", "--steps", 2, "--waves", 8, "--per-class", 1, "--epsilon", 2]
    assert call("generate", "digits", *words, "--no-publish-generator", "--out", tmp_path / "set")[0] == 0
    code, _, err = call("sample", tmp_path / "set", "--out", tmp_path / "more")
    assert code == 2
    assert "holds no generator" in err
    assert "made with --no-publish-generator" in err


def test_the_generator_of_a_distilled_set_carries_the_guarantee_of_the_statistics(call, tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "own.npz", x=rng.integers(0, 255, (60, 8, 8), dtype=np.uint8), y=np.arange(60) % 3)
    words = ["--method", "dp-merf", "--epsilon", 5, "--accountant", "rdp", *TINY["dp-merf"].split()]
    assert call("measure", tmp_path / "own.npz", *words, "--out", tmp_path / "stats")[0] == 0
    assert call("distil", tmp_path / "stats", "--seed", 3, "--per-class", 1, "--out", tmp_path / "set")[0] == 0
    assert call("sample", tmp_path / "set", "--per-class", 2, "--seed", 4, "--out", tmp_path / "drawn")[0] == 0
    assert call("verify", tmp_path / "drawn", "--source", tmp_path / "set")[0] == 0
    stats, made, drawn = (
        json.loads((tmp_path / name / "certificate.json").read_text()) for name in ("stats", "set", "drawn")
    )
    assert drawn["seeds"] == {"public": 3, "measured": 0, "drawn": 4}
    assert drawn["source"] == made["source"]
    assert drawn["source"]["certificate"] == stats["seal"]
    assert drawn["drawn"]["certificate"] == made["seal"]
    code, out, _ = call("verify", tmp_path / "drawn", "--source", tmp_path / "stats")
    assert code == 1  # it was drawn from the set, not distilled from these
    assert "holds by itself, but not that it was made from" in " ".join(out.split())
    assert "is NOT" not in out
    (tmp_path / "drawn" / "README.md").write_text("something else")
    code, out, _ = call("verify", tmp_path / "drawn", "--source", tmp_path / "stats")
    assert code == 1
    assert "is NOT what it claims to be: 2 check(s) failed" in " ".join(out.split())
