"""`privset generate --snapshots` and `privset evaluate --along`, as a user types them."""

import json

import pytest
from tests.cli.test_commands import TINY

from privset.cli import main
from privset.evaluation import RECIPES, Recipe

RUN = ["digits", "--epsilon", "3", "--accountant", "rdp", *TINY, "--runs", "3"]


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    out = tmp_path_factory.mktemp("along") / "set"
    assert main(["generate", *RUN, "--snapshots", "3", "--out", str(out)]) == 0
    return out


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setitem(RECIPES, "quick", lambda **_: Recipe(name="quick", epochs=2, full_rate_epochs=1, augment=False))


HOW = ["--data", "digits", "--classifier", "mlp", "--recipe", "quick", "--runs", "2"]


def test_accuracy_against_epsilon_is_shown_drawn_and_told_to_programs(call, release, tmp_path):
    code, out, _ = call("evaluate", release, *HOW, "--along", "--curve", tmp_path / "curve.svg")
    assert code == 0
    assert "answers so far" in out
    assert "with all sets along its run, costs epsilon 3" in out
    assert (tmp_path / "curve.svg").read_text().count("<circle") == 3
    assert "The curve is in" in out
    code, _, err = call("evaluate", release, *HOW, "--along", "--curve", tmp_path / "curve.svg")
    assert code == 2
    assert "curve.svg exists already" in err
    code, out, _ = call("evaluate", release, *HOW, "--along", "--curve", tmp_path / "curve.png", "--json")
    found = json.loads(out)
    assert [point["answers"] for point in found["along"]] == [2, 4, 6]
    assert found["along"][-1]["accuracy"] == found["accuracy"]
    assert found["along"][0]["epsilon"] < found["along"][-1]["epsilon"] <= 3
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert "along" not in json.loads(call("evaluate", release, *HOW, "--json")[1])


def test_what_is_measured_is_said_at_once_and_not_lost_when_the_rest_is_stopped(call, release, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("privset.cli.evaluate.evaluate_noise", stopped)
    code, out, err = call("evaluate", release, *HOW, "--beside", "noise")
    assert (code, out) == (130, "")
    assert "Trained on the release: " in err
    code, out, err = call("evaluate", release, *HOW, "--along", "--beside", "real", "noise")
    assert (code, out) == (130, "")
    lines = err.splitlines()
    (warned,) = (number for number, line in enumerate(lines) if line.startswith("For the data holder only"))
    (told,) = (number for number, line in enumerate(lines) if line.startswith("Trained on real records"))
    assert warned < told
    said = [line.partition(":")[0] for line in lines if "±" in line]
    assert said == ["After 2 answers", "After 4 answers", "After 6 answers", "Trained on real records"]
    _, out, err = call("evaluate", release, *HOW, "--json")
    assert "±" not in err  # all there is follows at once
    assert json.loads(out)["accuracy"]


def test_what_is_not_private_does_not_say_what_it_costs(call, tmp_path):
    out = tmp_path / "seeded"
    assert call("generate", *RUN, "--snapshots", "3", "--noise-seed", "1", "--out", out)[0] == 0
    _, words, _ = call("evaluate", out, *HOW, "--along")
    assert "NOT PRIVATE: epsilon so far is what such answers would cost" in " ".join(words.split())
    assert "costs epsilon" not in words
    assert json.loads(call("evaluate", out, *HOW, "--along", "--json")[1])["private"] is False


def test_the_configuration_of_the_release_asks_for_as_many(call, release, tmp_path):
    assert "\nsnapshots = 3\n" in (release / "config.toml").read_text()
    assert call("verify", release)[0] == 0
    assert call("plan", "--config", release / "config.toml")[0] == 0
    code, out, _ = call("generate", "--config", release / "config.toml", "--out", tmp_path / "again")
    assert code == 0
    assert "also published as it is after 2, 4, 6 answers" in out
    assert (tmp_path / "again" / "snapshots.safetensors").is_file()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("generate digits --epsilon 1 --out x --snapshots 3", "moments has no set that could be kept"),
        ("generate digits --epsilon 1 --out x --snapshots 3 --method dp-sgd", "use psg or psg-prior"),
        ("measure digits --epsilon 1 --out x --snapshots 3", "leave snapshots out"),
        ("generate digits --epsilon 9 --out x --snapshots 301 --method psg --preset small", "from 0 to 30 here"),
        ("generate digits --epsilon 9 --out x --snapshots -1 --method psg --preset small", "from 0 to 30 here"),
        ("evaluate RELEASE --data digits --curve curve.svg", "give both"),
        ("evaluate RELEASE --data digits --along --curve curve.pdf", "ends in .svg or .png"),
        ("evaluate RELEASE --data digits --along --curve no/curve.svg", "no such folder"),
        ("evaluate RELEASE --data digits --along --curve LOCKED/curve.svg", "choose another place for the curve"),
        ("evaluate PLAIN --data digits --along", "holds no sets along its run"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_spent(call, release, monkeypatch, tmp_path, words, sentence):
    plain = release.with_name("plain")
    if "PLAIN" in words and not plain.exists():
        assert call("generate", *RUN, "--out", plain)[0] == 0
    monkeypatch.chdir(tmp_path)
    if "LOCKED" in words:
        monkeypatch.setattr("os.access", lambda *_: False)
    places = {"RELEASE": release, "PLAIN": plain, "LOCKED": release.parent}
    for name, place in places.items():
        words = words.replace(name, str(place))
    code, out, err = call(*words.split())
    assert (code, out) == (2, "")
    assert sentence in " ".join(err.replace("│", " ").split())
    assert list(tmp_path.iterdir()) == []
