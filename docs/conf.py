"""How `make docs` builds these pages: Markdown by myst, the look by furo, the interface from its docstrings.

Every warning is an error there. Nothing is fetched, neither when the pages are built nor when they are looked at.
"""

from privset.version import __version__

project = "privset"
author = "The privset authors"
project_copyright = "The privset authors; Apache-2.0"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
nitpicky = True

# GitHub makes an anchor of every heading, and links in these pages use them; so does myst with this.
myst_heading_anchors = 4

html_theme = "furo"
html_title = "privset"
html_copy_source = False
html_show_sourcelink = False
pygments_style = "default"
pygments_dark_style = "monokai"

# In docstrings one pair of backticks is code, as everywhere in this project.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

# Types of other libraries, and of ours that are not for use: there is no page here to lead to.
nitpick_ignore_regex = [
    (r"py:.*", r"(torch|numpy|np|pathlib|collections|contextlib|typing|pydantic|annotated_types)(\..*)?"),
    (r"py:.*", r"Tensor|Mapping\[str|NoneType"),
    (r"py:.*", r"privset\.methods\.settings\.Config|privset\.networks\.generators\.ConditionalGenerator"),
    (r"py:.*", r"privset\.privacy\.(ledger\.Ledger|kept\.KeptAnswers|standing\..*|chacha\.CounterStream)"),
    (r"py:.*", r"privset\.release\.sections\..*"),
]


def keep_colons(app, what, name, documented, options, lines):  # noqa: ARG001 - what autodoc gives
    """Let a field's line have a colon: napoleon takes what stands before one, on the first line, for a type."""
    if what in ("attribute", "property"):
        lines.insert(0, "\\ ")  # a line of nothing, which is not an empty one


def setup(app):
    """Before napoleon, which has the priority 500."""
    app.connect("autodoc-process-docstring", keep_colons, priority=400)
