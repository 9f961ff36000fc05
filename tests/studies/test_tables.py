from pathlib import Path

from privset.studies.tables import filled, table

ROOT = Path(__file__).parents[2]


def test_the_tables_in_the_documents_are_those_of_the_results_on_file():
    for name in ("README.md", "docs/methods/moments.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert "<!-- results: moments -->" in text
        assert filled(text, ROOT / "results") == text, f"{name}: run `make tables`"


def test_a_table_has_a_line_for_each_cell_on_file():
    lines = table("moments", ROOT / "results").splitlines()
    assert len(lines) == 2 + len(list((ROOT / "results" / "moments").glob("*.json")))
    assert all(line.count("|") == lines[0].count("|") for line in lines)


def test_old_lines_are_replaced_and_the_rest_is_left_alone(tmp_path):
    text = "before\n<!-- results: moments -->\n| stale |\n<!-- end of results -->\nafter\n"
    made = filled(text, tmp_path)
    assert "stale" not in made
    assert made.startswith("before\n")
    assert made.endswith("<!-- end of results -->\nafter\n")
