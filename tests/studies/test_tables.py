import json
import shutil
from pathlib import Path

from privset.studies import get
from privset.studies.tables import (
    beside,
    changed,
    claimed,
    compared,
    filled,
    replay,
    sizes,
    stages,
    table,
    trained,
)

ROOT = Path(__file__).parents[2]


def test_the_tables_in_the_documents_are_those_of_the_results_on_file():
    for name, kind in (("README.md", "sizes"), ("docs/methods/moments.md", "results")):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert f"<!-- {kind}: moments -->" in text
        assert filled(text, ROOT / "results") == text, f"{name}: run `make tables`"


def test_a_table_has_a_line_for_each_cell_on_file():
    lines = table("moments", ROOT / "results").splitlines()
    assert len(lines) == 2 + len(list((ROOT / "results" / "moments").glob("*.json")))
    assert all(line.count("|") == lines[0].count("|") for line in lines)


def test_sizes_stand_side_by_side_and_each_is_the_better_recipe():
    lines = sizes("moments", ROOT / "results").splitlines()
    assert lines[0].startswith("| data | epsilon | 1 a class | 10 a class | 50 a class |")
    assert [line.split(" | ")[:2] for line in lines[2:4]] == [["| mnist", "1"], ["| mnist", "10"]]
    cell = json.loads((ROOT / "results" / "moments" / "cifar10-eps10-ipc50.json").read_bytes())
    best = max((one["accuracy"] for one in cell["recipes"].values()), key=lambda one: one["mean"])
    (line,) = [line for line in lines if line.startswith("| cifar10 | 10 |")]
    assert f"{best['mean']:.1f} ± {best['std']:.1f}" in line


def test_a_study_of_settings_says_what_each_cell_changes():
    lines = changed("settings", ROOT / "results").splitlines()
    cells = [cell for cell in get("settings").cells if (ROOT / "results" / "settings" / f"{cell.name}.json").exists()]
    assert len(lines) == 2 + len(cells)
    assert lines[2].startswith("| fashion-mnist | nothing | ")
    for line, cell in zip(lines[2:], cells, strict=True):
        changes = " ".join(f"`{name}` {value:g}" for name, value in cell.settings.items()) or "nothing"
        changes += "" if cell.stages is None else f", with {cell.stages} parties"
        found = json.loads((ROOT / "results" / "settings" / f"{cell.name}.json").read_bytes())["accuracy"]
        assert line == f"| {cell.data} | {changes} | {found['mean']:.1f} ± {found['std']:.1f} | 2 x 3 |"


def test_parties_one_after_the_other_stand_beside_one_party_with_all_classes():
    lines = stages("continual", ROOT / "results").splitlines()
    assert len(lines) == 2 + len(list((ROOT / "results" / "continual").glob("*.json")))
    assert lines[0].endswith("| stage 4 | stage 5 | forgotten | all classes at once |")

    def of(study, cell):
        return json.loads((ROOT / "results" / study / f"{cell}.json").read_bytes())["recipes"]["paper"]

    (line,) = [line for line in lines if line.startswith("| fashion-mnist | 1 | `moments` |")]
    last, undivided = (
        of("continual", "fashion-mnist-eps1-moments")["stages"][-1],
        of("moments", "fashion-mnist-eps1-ipc10"),
    )
    shown = [
        f"{one['mean']:.1f} ± {one['std']:.1f}" for one in (last["accuracy"], last["forgetting"], undivided["accuracy"])
    ]
    assert line.endswith(f"| {' | '.join(shown)} |")


def test_what_is_on_file_of_one_party_elsewhere_is_found_by_its_settings(tmp_path):
    (tmp_path / "continual").mkdir()
    shutil.copy(ROOT / "results" / "continual" / "mnist-eps1-moments.json", tmp_path / "continual")
    assert stages("continual", tmp_path).splitlines()[-1].endswith("| not yet |")


def test_replay_is_a_difference_with_its_error(tmp_path):
    (tmp_path / "replay").mkdir()
    apart = {"trained": {"mean": -2.26, "standard_error": 0.37}, "half": {"mean": 0.5, "standard_error": 0.21}}
    for epsilon in (10.0, 1.0):
        runs = [{"accuracy": {"random": 70.0}}, {"accuracy": {"random": 71.0}}]
        found = {"settings": {"epsilon": epsilon}, "runs": runs, "against_random": apart}
        (tmp_path / "replay" / f"toy-eps{epsilon:g}.json").write_text(json.dumps(found), encoding="utf-8")
    first, second = replay("toy", tmp_path).splitlines()[2:]
    assert first == "| 1 | 70.5 | -2.3 ± 0.4 | +0.5 ± 0.2 | 2 |"
    assert second.startswith("| 10 |")


def test_old_lines_are_replaced_and_the_rest_is_left_alone(tmp_path):
    text = "before\n<!-- results: moments -->\n| stale |\n<!-- end of results -->\nafter\n"
    made = filled(text, tmp_path)
    assert "stale" not in made
    assert made.startswith("before\n")
    assert made.endswith("<!-- end of results -->\nafter\n")


def test_what_was_published_stands_beside_what_was_measured(tmp_path):
    (tmp_path / "dp-sgd").mkdir()
    accuracy = {"mean": 97.86, "std": 0.11, "runs": []}
    for cell in get("dp-sgd").choose(["mnist-eps1-strong", "mnist-eps10-paper", "fashion-mnist-eps10-paper"]):
        found = cell.definition() | {
            "accuracy": accuracy,
            "recipe": cell.recipes[0],
            "recipes": dict.fromkeys(cell.recipes),
        }
        if cell.data == "fashion-mnist":
            found["settings"]["rate"] = 1e-9  # by another definition of the cell
        (tmp_path / "dp-sgd" / f"{cell.name}.json").write_text(json.dumps(found), encoding="utf-8")
    lines = compared("dp-sgd", tmp_path).splitlines()
    assert lines == [
        "| data | epsilon | preset | published | measured |",
        "| --- | --- | --- | --- | --- |",
        "| mnist | 1 | `strong` |  | 97.9 ± 0.1 |",
        "| mnist | 10 | `strong` | 96.5 | not yet |",
        "| mnist | 10 | `convnet` | 96.5 | not yet |",
        "| mnist | 10 | `paper` | 96.5 | 97.9 ± 0.1 |",
        "| fashion-mnist | 10 | `strong` | 82.9 | not yet |",
        "| fashion-mnist | 10 | `convnet` | 82.9 | not yet |",
        "| fashion-mnist | 10 | `paper` | 82.9 | not yet |",
    ]
    one = compared("baselines/gs-wgan", tmp_path).splitlines()
    assert "| mnist | 386 | `paper` | `convnet` | 84.9 | not yet |" in one
    assert "| fashion-mnist | 386 | `paper` | `mlp` | 65.4 | not yet |" in one
    assert len(one) == 2 + 2 + (1 + 10) + (2 + 10)  # calibrated; by the first settings; by the preset's
    assert compared("smoke", tmp_path) == ""


def test_recipes_stand_beside_each_other_and_that_of_the_study_the_sets_are_from(tmp_path):
    def keep(name, pattern, **means):
        (tmp_path / name).mkdir(exist_ok=True)
        (cell,) = get(name).choose([pattern])
        recipes = {recipe: {"accuracy": {"mean": mean, "std": 0.5}} for recipe, mean in means.items()}
        found = cell.definition() | {"recipe": "paper", "recipes": recipes}
        (tmp_path / name / f"{cell.name}.json").write_text(json.dumps(found, default=str), encoding="utf-8")

    keep("dp-merf", "mnist-eps10-ipc20-paper", paper=84.0, long=70.0)
    keep("recipes", "dp-merf-mnist-eps10-ipc20-paper", stated=81.0, plain=83.0)
    keep("recipes", "dp-merf-mnist-eps1-ipc6000-paper", stated=71.0, plain=73.0)
    keep("recipes", "real-mnist-ipc10", stated=93.0, plain=91.0)
    lines = trained("recipes/dp-merf", tmp_path).splitlines()
    assert lines == [
        "| data | epsilon | images a class | published | `paper` | `stated` | `plain` |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| mnist | 1 | 6,000 | 72.7 | not yet | 71.0 ± 0.5 | 73.0 ± 0.5 |",
        "| mnist | 10 | 20 | 83.2 | 84.0 ± 0.5 | 81.0 ± 0.5 | 83.0 ± 0.5 |",
    ]
    place = "<!-- trained: recipes/dp-merf -->\nold\n<!-- end of results -->\n"
    assert filled(place, tmp_path).splitlines()[1:-1] == lines
    assert trained("recipes/psg", tmp_path) == ""
    keep("precision", "mnist-all", paper=99.0, float32=99.5)  # nothing of the kind was published
    assert trained("precision", tmp_path).splitlines()[::2] == [
        "| data | `paper` | `float32` |",
        "| mnist | 99.0 ± 0.5 | 99.5 ± 0.5 |",
    ]
    assert trained("recipes", tmp_path).splitlines()[2] == (
        "| mnist | inf |  | 10 | 93.6 | not yet | 93.0 ± 0.5 | 91.0 ± 0.5 |"
    )


def test_methods_stand_beside_each_other_and_what_they_are_compared_with(tmp_path):
    wanted = {
        "real": ["mnist-ipc20", "mnist-ipc10", "fashion-mnist-all"],
        "dp-sgd": ["mnist-eps1-strong"],
        "dp-merf": ["mnist-eps10-ipc6000-standard", "mnist-eps10-ipc20-standard", "mnist-eps10-ipc10-drawn"],
        "baselines": ["mnist-eps10-datalens-mlp", "mnist-published10-gs-wgan"],
    }
    for number, (name, cells) in enumerate(wanted.items()):
        (tmp_path / name).mkdir()
        for cell in get(name).choose(cells):
            accuracy = {"mean": 90.0 + number, "std": 0.5}
            found = {"accuracy": accuracy, "recipe": cell.recipes[0]}
            found |= cell.definition() | {"recipes": {one: {"accuracy": accuracy} for one in cell.recipes}}
            (tmp_path / name / f"{cell.name}.json").write_text(json.dumps(found), encoding="utf-8")
    found = json.loads((tmp_path / "dp-sgd" / "mnist-eps1-strong.json").read_bytes())
    other = json.dumps(found | {"epsilon": 10.0, "delta": 1e-6})  # by another definition of the cell
    (tmp_path / "dp-sgd" / "mnist-eps10-strong.json").write_text(other, encoding="utf-8")
    head, _, *lines = beside(",".join(wanted), tmp_path).splitlines()
    assert head.startswith("|  | preset | images a class | mnist, 1 | mnist, 10 | fashion-mnist, 1 |")
    # Not what another network says, nor with a setting changed, nor at another epsilon than the column's.
    assert lines == [
        "| real |  | 10 | 90.0 ± 0.5 | 90.0 ± 0.5 |  |  |  |  |",
        "| real |  | 20 | 90.0 ± 0.5 | 90.0 ± 0.5 |  |  |  |  |",
        "| real |  | all |  |  | 90.0 ± 0.5 | 90.0 ± 0.5 |  |  |",
        "| dp-sgd | `strong` |  | 91.0 ± 0.5 |  |  |  |  |  |",
        "| dp-merf | `standard` | 20 |  | 92.0 ± 0.5 |  |  |  |  |",
        "| dp-merf | `standard` | 6,000 |  | 92.0 ± 0.5 |  |  |  |  |",
    ]


def test_published_noise_stands_beside_noise_that_is_proven_to_be_what_was_claimed(tmp_path):
    study = get("baselines")
    (tmp_path / "baselines").mkdir()
    for number, name in enumerate(("published1-datalens", "published10-datalens-dealt", "eps10-datalens")):
        (cell,) = [cell for cell in study.cells if cell.name == f"mnist-{name}"]
        accuracy = {"mean": 71.0 + number, "std": 0.5}
        found = {"accuracy": accuracy, "recipe": "paper", "proven": 8.4962}
        found |= cell.definition() | {"recipes": {"paper": {"accuracy": accuracy}}}
        (tmp_path / "baselines" / f"{cell.name}.json").write_text(json.dumps(found), encoding="utf-8")
    head, _, *lines = claimed("baselines", tmp_path).splitlines()
    assert head == (
        "| method | data | epsilon claimed | published | by the published noise | proven for that "
        "| by noise proven for what is claimed |"
    )
    assert len(lines) == sum(
        cell.preset == "paper" and cell.classifier == "convnet" and cell.published is not None for cell in study.cells
    )
    assert [line for line in lines if line.startswith("| `datalens`") and "| mnist |" in line] == [
        "| `datalens`, `by_class` off, `same_codes` off | mnist | 1 | 71.2 | 71.0 ± 0.5 | 8.497 | not yet |",
        "| `datalens` | mnist | 1 | 71.2 | not yet |  | not yet |",
        "| `datalens`, `by_class` off, `same_codes` off | mnist | 10 | 80.7 | not yet |  | 73.0 ± 0.5 |",
        "| `datalens` | mnist | 10 | 80.7 | 72.0 ± 0.5 | 8.497 | 73.0 ± 0.5 |",
    ]
    assert "| `dp-cgan` | mnist | 10 | 52.5 | not yet |  | not yet |" in lines
