import pytest

from privset.report.markup import Markup, join, named, table, tag

NASTY = "<img src=x onerror=alert(1)> & \" ' </script>"


def test_text_is_escaped_and_markup_is_not_escaped_twice() -> None:
    inner = tag("b", NASTY)
    assert "<img" not in inner
    assert tag("p", inner) == f"<p>{inner}</p>"
    assert tag("p", "&amp;") == "<p>&amp;amp;</p>"


@pytest.mark.parametrize("text", [NASTY, '" onload="x', "'><script>"])
def test_attributes_cannot_be_left(text: str) -> None:
    made = tag("p", title=text)
    assert made.count('"') == 2
    assert "<" not in made[1:-5]
    assert ">" not in made[1:-6]


def test_attributes_are_spelled_as_html_has_them() -> None:
    made = tag("rect", class_="bar", aria_hidden="true", width=2.5, hidden=True, title=None, open=False)
    assert made == '<rect class="bar" aria-hidden="true" width="2.5" hidden></rect>'


def test_an_element_without_content_is_not_closed() -> None:
    assert tag("img", alt="") == '<img alt="">'


def test_joined_text_is_escaped_however_deep_it_is() -> None:
    assert join(["<", ["<", [None, ("<", 3)]]]) == "&lt;&lt;&lt;3"
    assert isinstance(join([]), Markup)


def test_a_table_escapes_headings_cells_and_caption() -> None:
    made = table((NASTY, "b"), [(NASTY, named(NASTY))], caption=NASTY)
    assert "<img" not in made
    assert made.count("&lt;img") == 5  # two of them in the caption and the name of its frame
