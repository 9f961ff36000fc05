"""The commands as a user types them, in one process for speed; end_to_end/ starts them for real."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from privset.cli import console, main
from privset.cli.arguments import DataArguments
from privset.cli.generate import GenerateArguments
from privset.evaluation import RECIPES
from privset.methods import Execution, PsgConfig
from privset.release import SyntheticSet

TINY = [
    "--method",
    "psg",
    "--runs",
    "1",
    "--outer-steps",
    "1",
    "--batches-per-step",
    "2",
    "--batch-size",
    "64",
    "--network",
    "mlp",
    "--width",
    "4",
    "--per-class",
    "1",
]


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    out = tmp_path_factory.mktemp("cli") / "set"
    assert main(["generate", "digits", "--epsilon", "3", "--accountant", "rdp", "--out", str(out), *TINY]) == 0
    return out


COMMANDS = ["datasets", "methods", "plan", "generate", "measure", "distil", "evaluate", "verify", "export", "report"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_that_shows_its_settings(call, command):
    code, out, _ = call(command, "--help")
    assert code == 0
    assert f"privset {command}" in out
    assert "--json" in out


def test_help_of_evaluate_names_every_recipe(call):
    _, out, _ = call("evaluate", "--help")
    (line,) = re.findall(r"How to train it: ([^.]*)\.", re.sub(r"[│\s]+", " ", out))
    assert all(re.search(rf"\b{name}\b", line) for name in RECIPES)


def test_help_of_generate_shows_every_setting_with_the_value_it_would_have(call, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    _, out, _ = call("generate", "--method", "psg", "--per-class", "20", "--epsilon", "1", "--help")
    kinds = (PsgConfig, DataArguments, Execution, GenerateArguments)
    names = {field.name for kind in kinds for field in dataclasses.fields(kind)}
    for name in names - {"data", "settings", "reading", "execution"}:
        assert name.replace("_", "-") in out, name
    assert "(default: 200)" in out  # runs: R is 200 at epsilon 1
    assert "(default: 20)" in out


def test_without_a_command_the_overview_is_shown(call):
    code, out, _ = call()
    assert code == 2
    assert "privset generate" in out
    assert call("--help")[0] == 0
    code, _, err = call("genrate")
    assert code == 2
    assert "there is no command 'genrate'" in err
    for typed in ("genrate", "gen", "GEN"):
        assert call(typed)[2].endswith(" Did you mean generate?\n")
    assert call("me")[2].endswith(" Did you mean methods or measure or merge?\n")
    assert "Did you mean" not in call("xyz")[2]


def test_datasets_and_methods_can_be_read_by_programs(call):
    _, out, _ = call("datasets", "--json")
    assert [entry["name"] for entry in json.loads(out)["datasets"]] == ["digits", "mnist", "fashion-mnist", "cifar10"]
    _, out, _ = call("methods", "--json")
    told = json.loads(out)
    found = {entry["name"]: (entry["makes"], entry["measures_once"]) for entry in told["methods"]}
    assert [entry["name"] for entry in told["references"]] == ["real"]
    for entry in told["methods"] + told["references"]:
        assert entry["page"] == f"docs/methods/{entry['name']}.md"
        assert (Path(__file__).parents[2] / entry["page"]).is_file()
    assert found["moments"] == ("a set", True)
    assert found["psg"] == ("a set", False)
    assert found["dp-sgd"] == ("a classifier", False)


def test_methods_says_what_each_makes_and_which_measure_once(call, monkeypatch):
    monkeypatch.setattr(console.OUT, "width", 120)
    _, out, _ = call("methods")
    rows = [[cell.strip() for cell in line.split("│")[1:4]] for line in out.splitlines() if line.count("│") == 5]
    assert ["dp-merf", "a set", "yes"] in rows
    assert ["dp-sgd", "a classifier", "no"] in rows


@pytest.mark.parametrize(
    ("per_class", "epsilon", "accountant", "questions", "noise"),
    [(10, 10, "rdp", 100_000, 0.966), (10, 10, "pld", 100_000, 0.932), (20, 1, "best", 40_000, 3.270)],
)
def test_plan_prints_the_published_noise_and_reads_no_data(
    call, monkeypatch, tmp_path, per_class, epsilon, accountant, questions, noise
):
    monkeypatch.setenv("PRIVSET_DATA", str(tmp_path))  # where there is none
    words = f"plan mnist --method psg --epsilon {epsilon} --per-class {per_class} --accountant {accountant} --json"
    code, out, _ = call(*words.split())
    assert code == 0
    plan = json.loads(out)
    assert plan["questions"] == questions
    assert round(plan["noise_multiplier"], 3) == noise
    assert plan["epsilon"] <= epsilon
    assert plan["delta"] == 1e-5
    assert plan["accountant"] == accountant
    assert plan["relation"] == "add-or-remove-one-record"


def test_generate_verify_and_evaluate_speak_json(call, tmp_path):
    out = tmp_path / "set"
    words = ["generate", "digits", "--epsilon", "inf", "--out", out, "--json", *TINY]
    code, text, _ = call(*words)
    assert code == 0
    summary = json.loads(text)
    assert summary["epsilon"] == "inf"
    assert summary["private"] is False
    code, text, _ = call("verify", out, "--json")
    assert code == 0
    assert json.loads(text)["ok"] is True
    words = [
        "--data",
        "digits",
        "--classifier",
        "mlp",
        "--recipe",
        "quick",
        "--runs",
        "2",
        "--beside",
        "noise",
        "--json",
    ]
    code, text, _ = call("evaluate", out, *words)
    assert code == 0
    result = json.loads(text)
    accuracy = result["accuracy"]
    assert len(accuracy["runs"]) == 2
    assert accuracy["mean"] == pytest.approx(sum(accuracy["runs"]) / 2)
    assert 0 <= accuracy["std"] <= 100
    assert np.array(result["confusion"]).sum() == 2 * 359
    assert set(result["beside"]) == {"noise"}


@pytest.mark.parametrize("alike", [True, False])
def test_a_set_whose_classes_look_alike_is_cautioned_about(call, tmp_path, monkeypatch, alike):
    monkeypatch.setattr(SyntheticSet, "looks_alike", alike)
    code, out, err = call("generate", "digits", "--epsilon", "3", "--out", str(tmp_path / "set"), *TINY)
    assert code == 0
    assert ("CAUTION: on average images of all classes look the same; look at" in " ".join(err.split())) is alike
    assert "CAUTION: on average" not in out


def test_a_plan_says_whether_a_run_that_is_stopped_can_go_on(call):
    lost = "A run that is stopped cannot be gone on with"
    for name, resumable in (("g-pate", False), ("dp-cgan", True)):
        words = ["--method", name, "--preset", "small", "--epsilon", "10", "--accountant", "rdp"]
        assert (lost in call("plan", "digits", *words)[1]) is not resumable
        assert json.loads(call("plan", "digits", *words, "--json")[1])["resumable"] is resumable


def test_an_epsilon_that_is_claimed_elsewhere_is_shown_beside_the_proven_one(call, tmp_path):
    words = ["--method", "dp-merf", "--steps", "2", "--per-class", "1", "--waves", "8", "--epsilon", "2"]
    claimed = "Claimed by Harder, Adamczewski and Park (AISTATS 2021) for these settings: epsilon 5.317, delta 1e-05"
    code, said, _ = call("plan", "digits", *words)
    assert code == 0
    assert "Cost: epsilon 2 of 2" in said
    assert f"{claimed} (replace-one-record); another bound, and not the guarantee." in said
    code, said, _ = call("plan", "digits", *words, "--json")
    assert round(json.loads(said)["claim"]["epsilon"], 3) == 5.317
    code, said, _ = call("generate", "digits", *words, "--out", tmp_path / "set")
    assert code == 0
    assert "private with epsilon 2 and delta 1e-05" in said
    assert said.count(claimed) == 1  # in the plan
    code, said, _ = call("verify", tmp_path / "set", "--json")
    assert code == 0
    (check,) = [check for check in json.loads(said)["checks"] if check["name"] == "claim"]
    assert "not the guarantee" in check["detail"]
    code, said, _ = call("methods")
    assert "dp-merf: the published noise is claimed to cost epsilon 0.98 and 10" in said
    _, said, _ = call("methods", "--json")
    claims = {one["name"]: one["claims"] for one in json.loads(said)["methods"]}
    assert claims["dp-merf"].endswith("(delta 1e-5)")
    assert claims["moments"] is None


def test_a_classifier_from_plan_to_evaluation(call, tmp_path):
    out, words = tmp_path / "model", ["--method", "dp-sgd", "--epochs", "3", "--epsilon", "5", "--accountant", "rdp"]
    code, said, _ = call("plan", "digits", *words)
    assert code == 0
    assert "dp-sgd on digits: a classifier of 10 classes, from 1,438 records" in said
    code, said, _ = call("generate", "digits", *words, "--out", str(out), "--json")
    assert code == 0
    assert json.loads(said)["weights"] == 3250
    assert call("verify", str(out))[0] == 0
    code, said, _ = call("evaluate", str(out), "--data", "digits", "--json")
    found = json.loads(said)
    assert code == 0
    assert (found["trained_on"], found["classifier"], found["recipe"]) == ("private", "scattering", "as trained")
    assert len(found["accuracy"]["runs"]) == 1
    code, said, _ = call("evaluate", str(out), "--data", "digits")
    assert "private records, by the release" in said
    code, said, _ = call("generate", "--config", str(out / "config.toml"), "--out", str(tmp_path / "again"))
    assert code == 0
    assert "a classifier, of 3,250 weights" in said
    for more, sentence in (
        (["--recipe", "quick"], "tested as it is; leave out --recipe"),
        (["--classifier", "convnet", "--runs=3"], "tested as it is; leave out --classifier, --runs"),  # the defaults
        (["--beside", "noise"], "no images that noise could stand in for"),
    ):
        code, _, error = call("evaluate", str(out), "--data", "digits", *more)
        assert code == 2
        assert sentence in error
    code, _, error = call("export", str(out), "--to", "npz", "--out", str(tmp_path / "export"))
    assert code == 2
    assert "holds a classifier, and no images" in error
    code, _, error = call("measure", "digits", *words, "--out", str(tmp_path / "statistics"))
    assert code == 2
    assert "asks as it goes" in error


def test_a_plan_says_how_long_a_run_takes_before_anything_is_paid(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("--method", "psg", "--preset", "small", "--epsilon", "10", "--runs", "2", "--time")
    code, said, _ = call("plan", "digits", *words)
    assert code == 0
    assert "A run takes about 0:0" in said
    found = json.loads(call("plan", "digits", *words, "--json")[1])["run"]
    assert found["phases"]["matching gradients"]["steps"] == 20
    assert found["seconds"] > 0
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for wrong, sentence in (
        (("--method", "moments"), "pays for a few answers at once"),
        (("--method", "psg", "--device", "cuda"), "shows no CUDA device"),
    ):
        code, _, said = call("plan", "digits", *wrong, "--epsilon", "10", "--time")
        assert code == 2
        assert sentence in said


def test_a_plan_says_where_a_batch_is_all_records(call):
    words = ("--method", "dp-cgan", "--preset", "small", "--epsilon", "10")
    everyone = "more than all records: everyone takes part in every answer"
    assert everyone in call("plan", "digits", *words)[1]
    assert everyone not in call("plan", "digits", *words, "--batch-size", "1438")[1]
    for generated in ("dp-merf", "gs-wgan"):  # whose batches are of images that they make
        made = ("--method", generated, "--epsilon", "10", "--batch-size", "2000")
        assert everyone not in call("plan", "digits", *made)[1]


def test_a_changed_release_fails_with_1(call, release, tmp_path):
    changed = tmp_path / "changed"
    shutil.copytree(release, changed)
    card = changed / "README.md"
    card.write_text(card.read_text() + " ")
    assert call("verify", release)[0] == 0
    code, out, _ = call("verify", changed)
    assert code == 1
    assert "FAILED" in out
    assert "NOT what it claims to be" in out


def test_verify_shows_the_seal_whole_and_in_one_line_where_there_is_little_room(call, release, monkeypatch):
    seal = json.loads((release / "certificate.json").read_bytes())["seal"]
    monkeypatch.setattr(console.OUT, "width", 60)
    code, out, _ = call("verify", release)
    assert code == 0
    assert f"Seal of the certificate: {seal}" in out.splitlines()
    assert "…" not in out


def test_evaluation_refuses_data_the_release_was_not_made_for(call, release, tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "other.npz"
    np.savez(path, x=rng.integers(0, 255, (40, 8, 8), dtype=np.uint8), y=np.arange(40) % 2)
    code, _, err = call("evaluate", release, "--data", path, "--test-fraction", "0.5")
    assert code == 2
    assert "labels would not mean the same" in err
    code, _, err = call("evaluate", release, "--data", "digits", "--mean", "0.1", "--std", "0.3")
    assert code == 2
    assert "is normalised with mean" in err


def test_a_folder_of_ones_own_images_from_plan_to_evaluation(call, tmp_path):
    rng = np.random.default_rng(1)
    for label in ("cat", "dog"):
        (tmp_path / "pets" / label).mkdir(parents=True)
        for number in range(30):
            pixels = rng.integers(0, 128, (12, 12, 3), dtype=np.uint8) + (100 if label == "dog" else 0)
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "pets" / label / f"{number}.png")
    common = [tmp_path / "pets", "--test-fraction", "0.2", "--epsilon", "8", "--accountant", "rdp", *TINY]
    assert call("plan", *common)[0] == 0
    code, out, err = call("generate", *common, "--out", tmp_path / "set")
    assert code == 0, err
    assert "2 classes, from 48 records of 3x12x12" in out
    words = ["--data", tmp_path / "pets", "--test-fraction", "0.2", "--classifier", "mlp", "--recipe", "quick"]
    code, out, err = call("evaluate", tmp_path / "set", *words, "--runs", "1")
    assert code == 0, err
    assert "cat" in out
