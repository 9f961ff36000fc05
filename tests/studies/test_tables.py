import json
from pathlib import Path

from privset.studies.tables import filled, seconds, sizes, table

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


def test_old_lines_are_replaced_and_the_rest_is_left_alone(tmp_path):
    text = "before\n<!-- results: moments -->\n| stale |\n<!-- end of results -->\nafter\n"
    made = filled(text, tmp_path)
    assert "stale" not in made
    assert made.startswith("before\n")
    assert made.endswith("<!-- end of results -->\nafter\n")


def test_what_a_command_took_is_read_from_its_file(tmp_path):
    (tmp_path / "speed").mkdir()
    for device, cores in (("cpu", 2), ("Some Card", 16)):
        found = {"what": "privset generate", "value": 61.7, "device": device, "cores": cores}
        accuracy = {"mean": 95.44, "std": 0.26, "runs": [95.2, 95.7]}
        text = json.dumps(found | {"accuracy": accuracy})
        (tmp_path / "speed" / f"release-{device.split()[0]}.json").write_text(text, encoding="utf-8")
    (tmp_path / "speed" / "gradient-cpu.json").write_text("{}", encoding="utf-8")
    lines = seconds("release", tmp_path).splitlines()
    assert lines[2:] == [
        "| `privset generate` | Some Card | 62 | 95.4 ± 0.3 |",
        "| `privset generate` | 2 CPU cores | 62 | 95.4 ± 0.3 |",
    ]
    place = "<!-- seconds: release -->\nold\n<!-- end of results -->\n"
    assert filled(place, tmp_path).splitlines()[1:-1] == lines
