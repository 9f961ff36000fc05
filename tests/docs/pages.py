"""The Markdown pages of this project, taken apart: fenced blocks, links, headings."""

import dataclasses
import itertools
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = sorted(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts)
PAGES = [*(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY", "CHANGELOG")), *DOCS]
GUIDE = [path for path in DOCS if path.parent.name == "guide"]

_FENCE = re.compile(r"^```([\w{}-]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Block:
    """What stands between two fences.

    Attributes:
        kind: The word after the first fence.
        text: The lines between them.
        line: Number of the first of these.
        output: The block of plain text that follows at once, which is what this one prints; None if there is none.
    """

    kind: str
    text: str
    line: int
    output: str | None = None


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = list(_FENCE.finditer(text))
    result = []
    for match, after in itertools.zip_longest(found, found[1:]):
        follows = after is not None and after[1] == "text" and not text[match.end() : after.start()].strip()
        line = text.count("\n", 0, match.start(2)) + 1
        result.append(Block(match[1], match[2], line, after[2] if follows and after is not None else None))
    return result


def prose(page: Path) -> str:
    """The page without its blocks and without code in its lines."""
    return re.sub(r"`[^`\n]+`", "", _FENCE.sub("", page.read_text(encoding="utf-8")))


def links(page: Path) -> list[str]:
    """Links to other files and to headings; addresses on the web are left out."""
    return [link for link in _LINK.findall(prose(page)) if not re.match(r"[a-z]+:", link)]


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to the headings of a page."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in _HEADING.findall(text)}
