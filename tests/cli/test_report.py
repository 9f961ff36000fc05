import json

import pytest
from tests.release.conftest import Workshop
from tests.report.conftest import evaluated, result


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    return Workshop().publish(tmp_path_factory.mktemp("cli") / "release", Workshop.plan())


def test_report_says_where_the_page_is(call, release, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = call("report", release)
    assert code == 0
    assert out.strip() == "The report is in report.html"
    code, out, _ = call("report", release, "--out", tmp_path / "page.html", "--json")
    assert code == 0
    assert json.loads(out) == {
        "report": str(tmp_path / "page.html"),
        "bytes": (tmp_path / "page.html").stat().st_size,
    }
    assert (tmp_path / "page.html").read_bytes() == (tmp_path / "report.html").read_bytes()


def test_evaluations_are_given_as_files(call, release, tmp_path):
    for name in ("convnet", "mlp"):
        (tmp_path / f"{name}.json").write_text(json.dumps(evaluated(release, classifier=name)))
    out = tmp_path / "page.html"
    paths = [tmp_path / "convnet.json", tmp_path / "mlp.json"]
    code, _, err = call("report", release, "--evaluation", *paths, "--out", out)
    assert code == 0
    assert "carry no guarantee" in err
    page = out.read_text()
    assert "mlp, recipe quick" in page
    assert "convnet, recipe quick" in page


@pytest.mark.parametrize(("data", "warned"), [("toy", True), ("other", False)])
def test_accuracies_of_studies_are_warned_of_too(call, release, tmp_path, data, warned):
    (tmp_path / "results" / "trial").mkdir(parents=True)
    for epsilon in (1.0, 2.0):
        path = tmp_path / "results" / "trial" / f"{epsilon}.json"
        path.write_text(json.dumps(result(data=data, epsilon=epsilon)))
    code, _, err = call("report", release, "--results", tmp_path / "results", "--out", tmp_path / "page.html")
    assert code == 0
    assert ("carry no guarantee" in err) == warned


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("report", "none was given"),
        ("report nowhere", "nowhere is not a folder"),
        ("report RELEASE --evaluation nowhere.json", "nowhere.json cannot be read"),
        ("report RELEASE --results nowhere", "nowhere holds no results"),
        ("report RELEASE --out missing/page.html", "missing is not a folder"),
        ("report RELEASE --evaluation RELEASE", "name releases before --evaluation"),
        ("report RELEASE RELEASE", "name it once"),
    ],
)
def test_what_cannot_work_is_refused_with_a_sentence(call, release, tmp_path, monkeypatch, words, sentence):
    monkeypatch.chdir(tmp_path)
    code, out, err = call(*words.replace("RELEASE", str(release)).split())
    assert code == 2
    assert out == ""
    assert sentence in " ".join(err.split())
    assert list(tmp_path.iterdir()) == []


def test_an_existing_page_is_kept_unless_told(call, release, tmp_path):
    out = tmp_path / "page.html"
    out.write_text("mine")
    assert call("report", release, "--out", out)[0] == 2
    assert out.read_text() == "mine"
    assert call("report", release, "--out", out, "--replace")[0] == 0
    assert out.read_text() != "mine"
