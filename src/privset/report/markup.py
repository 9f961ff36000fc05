"""HTML and SVG that escape by default: whatever is not `Markup` is text, wherever it comes from.

Class names, names of data and everything else in a certificate were written by someone else. A page is put together
with `tag` alone, so that none of them can become anything but text.
"""

from __future__ import annotations

import html
from collections.abc import Iterable

_EMPTY = {"meta", "img", "br", "hr", "col"}


class Markup(str):
    """Text that is HTML already, and is not escaped again."""

    __slots__ = ()


Child = str | int | None | Iterable["Child"]


def tag(name: str, /, *children: Child, **attributes: str | float | bool | None) -> Markup:
    """One element with what is in it.

    Args:
        name: Of the element.
        children: Text, which is escaped, other elements, or lists of these; None is left out.
        attributes: By name, where ``_`` stands for ``-`` and a last ``_`` is dropped (``class_``). True gives an
            attribute without a value; None and False leave it out.

    >>> tag("p", "1 < 2 ", tag("b", "so"), class_="note", aria_label='"plain"', hidden=False)
    '<p class="note" aria-label="&quot;plain&quot;">1 &lt; 2 <b>so</b></p>'
    """
    words = [name]
    for key, value in attributes.items():
        key = key.removesuffix("_").replace("_", "-")
        if value is True:
            words.append(key)
        elif value is not None and value is not False:
            words.append(f'{key}="{html.escape(f"{value:g}" if isinstance(value, float) else str(value))}"')
    opened = f"<{' '.join(words)}>"
    return Markup(opened if name in _EMPTY else f"{opened}{join(children)}</{name}>")


def join(children: Iterable[Child]) -> Markup:
    """Text and elements one after the other, as one piece.

    >>> join(["<", [tag("br"), None], 3])
    '&lt;<br>3'
    """
    return Markup("".join(_written(child) for child in children))


def _written(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    if isinstance(child, str | int):
        return html.escape(str(child), quote=False)
    return join(child)


def named(text: str) -> Markup:
    """A name that someone else chose; letters that run from right to left do not turn what is around them."""
    return tag("bdi", text)


def table(
    columns: Iterable[Child], rows: Iterable[Iterable[Child]], *, caption: str, kind: str | None = None
) -> Markup:
    """A table whose first column names the rows, in a frame that scrolls by itself where there is little room.

    Args:
        columns: Headings.
        rows: Their cells.
        caption: What it shows; read aloud, and the name of the frame.
        kind: How it is set: ``numbers`` has all columns but the first flush right, ``pairs`` shows no headings.
    """
    head = tag("tr", [tag("th", column, scope="col") for column in columns])
    body = [tag("tr", [_cell(place, cell) for place, cell in enumerate(row)]) for row in rows]
    inner = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", body), class_=kind)
    return framed(inner, f"Table: {caption}")


def framed(content: Markup, label: str) -> Markup:
    """A part of the page that scrolls sideways by itself; also with the keyboard, for which it needs a name."""
    return tag("div", content, class_="frame", role="region", aria_label=label, tabindex="0")


def _cell(place: int, content: Child) -> Markup:
    return tag("td", content) if place else tag("th", content, scope="row")
