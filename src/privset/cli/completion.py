"""`privset completion bash|zsh|fish`: a script that completes commands, options and what is known by name.

The options are read from the help of each command, so a new one is completed without a word about it here. They are
written into the script: to ask privset at every key would take a second each.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Literal

import tyro

from privset import methods, networks
from privset.cli import console
from privset.cli.arguments import parse
from privset.data.named import catalogue
from privset.errors import PrivsetError
from privset.evaluation import RECIPES

Shell = Literal["bash", "zsh", "fish"]
Options = dict[str, list[str]]
"""Option -> the words it can be, if these are known."""

_ACTIONS = {"study": ["list", "run", "show"], "continual": ["stage"]}
"""Commands with commands of their own."""

_PLACES = {
    "bash": 'eval "$(privset completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(privset completion zsh)" in ~/.zshrc, after compinit',
    "fish": "privset completion fish > ~/.config/fish/completions/privset.fish",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompletionArguments:
    """A script that makes a shell complete what is typed after `privset`."""

    shell: tyro.conf.Positional[Annotated[Shell, tyro.conf.arg(metavar="{bash,zsh,fish}")]]
    """Whose script; where to put it is said in its first line."""


def completion(arguments: Sequence[str]) -> int:
    """Print a script with which bash, zsh or fish complete commands and options."""
    from privset.cli.main import COMMANDS

    parsed = parse(CompletionArguments, arguments, "privset completion")
    options = {name: options_of(command, _ACTIONS.get(name, [])) for name, command in COMMANDS.items()}
    known = [*catalogue.SETS]
    words = {"plan": known, "generate": known, "measure": known, "completion": list(_PLACES), **_ACTIONS}
    words["continual"] = [*words["continual"], *known]
    about = {name: (command.__doc__ or "").splitlines()[0] for name, command in COMMANDS.items()}
    write = {"bash": _bash, "zsh": _zsh, "fish": _fish}[parsed.shell]
    console.show(f"# For privset in {parsed.shell}; to have it always: {_PLACES[parsed.shell]}")
    console.show(write(options, words, about))
    return 0


def options_of(command: Callable[[Sequence[str]], int], actions: Sequence[str]) -> Options:
    """The options of a command, of all of its actions and with all methods."""
    found: Options = {}
    for start in ([], *([action] for action in actions)):
        found |= _in_help(_help(command, start))
    if "--method" in found:
        for name in methods.METHODS:
            found |= _in_help(_help(command, ["--method", name]))
    known = {
        "--method": list(methods.METHODS),
        "--preset": [preset for method in methods.METHODS.values() for preset in method.presets],
        "--network": list(networks.CLASSIFIERS),
        "--classifier": list(networks.CLASSIFIERS),
        "--recipe": list(RECIPES),
        "--device": ["cpu", "cuda"],
    }
    return {name: values or list(dict.fromkeys(known.get(name, []))) for name, values in found.items()}


def _help(command: Callable[[Sequence[str]], int], start: Sequence[str]) -> str:
    text = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")  # without UTF-8 there are no boxes
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "200"  # wide enough that no option is cut
    try:
        with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit, PrivsetError):
            command([*start, "--help"])
    finally:
        os.environ.pop("COLUMNS") if before is None else os.environ.update(COLUMNS=before)
    text.seek(0)
    return text.read()


def _in_help(text: str) -> Options:
    """Options, each at the start of a line of a box, with the words in braces behind it.

    >>> _in_help("│ -h, --help  show  ││ --to {png,npz}   │ │ --size {None}|INT  see --out")
    {'--help': [], '--to': ['png', 'npz'], '--size': []}
    """
    found = re.findall(r"│ (?:-h, )?(--[\w-]+)(?: \[?\{([\w,-]+)\})?", text)
    return {name: [] if words in ("", "None") else words.split(",") for name, words in found}


def _cases(options: Mapping[str, Options], words: Mapping[str, Sequence[str]]) -> str:
    """What bash and zsh have in common: which options, values and words belong to a command."""
    lines = ['    case "$command" in']
    for name, known in options.items():
        lines.append(f'        {name}) options="{" ".join(known)}"; words="{" ".join(words.get(name, []))}" ;;')
    lines += ["    esac", '    case "$command $previous" in']
    for name, known in options.items():
        for option, values in known.items():
            if values:
                lines.append(f'        "{name} {option}") values="{" ".join(values)}" ;;')
    return "\n".join([*lines, "    esac"])


def _bash(options: Mapping[str, Options], words: Mapping[str, Sequence[str]], about: Mapping[str, str]) -> str:
    return f"""\
_privset() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} command=${{COMP_WORDS[1]}}
    local options= values= words=
    COMPREPLY=()
    if (( COMP_CWORD == 1 )); then
        COMPREPLY=($(compgen -W "{" ".join(about)} --help --version" -- "$current"))
        return
    fi
{_cases(options, words)}
    if [[ -n $values ]]; then
        COMPREPLY=($(compgen -W "$values" -- "$current"))
    elif [[ $current == -* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$current"))
    elif (( COMP_CWORD == 2 )) && [[ -n $words ]]; then
        COMPREPLY=($(compgen -W "$words" -- "$current") $(compgen -f -- "$current"))
    fi
}}
complete -o default -F _privset privset"""


def _zsh(options: Mapping[str, Options], words: Mapping[str, Sequence[str]], about: Mapping[str, str]) -> str:
    return f"""\
_privset() {{
    local previous=${{words[CURRENT-1]}} command=${{words[2]}} position=$CURRENT
    local options= values=
    if (( position == 2 )); then
        compadd -- {" ".join(about)} --help --version
        return
    fi
    local -a typed=("${{words[@]}}")
    local words=
{_cases(options, words)}
    if [[ -n $values ]]; then
        compadd -- ${{=values}}
    elif [[ ${{typed[position]}} == -* ]]; then
        compadd -- ${{=options}}
    else
        (( position == 3 )) && [[ -n $words ]] && compadd -- ${{=words}}
        _files
    fi
}}
compdef _privset privset"""


def _fish(options: Mapping[str, Options], words: Mapping[str, Sequence[str]], about: Mapping[str, str]) -> str:
    lines = []
    for name, text in about.items():
        quoted = text.replace("\\", "\\\\").replace("'", "\\'")
        lines.append(f"complete -c privset -n __fish_use_subcommand -f -a {name} -d '{quoted}'")
        here = f"complete -c privset -n '__fish_seen_subcommand_from {name}'"
        if words.get(name):
            lines.append(f"{here} -a '{' '.join(words[name])}'")
        for option, values in options[name].items():
            known = f" -x -a '{' '.join(values)}'" if values else ""
            lines.append(f"{here} -l {option.removeprefix('--')}{known}")
    return "\n".join(lines)
