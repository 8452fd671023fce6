"""`holdfast completion bash|zsh|fish`: a script for the shell, made from the commands."""

from __future__ import annotations

import argparse
import shlex

from holdfast.cli.options import leaves

SHELLS = ("bash", "zsh", "fish")


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Print a script that completes commands and options: "
        'eval "$(holdfast completion bash)" in ~/.bashrc, the same with zsh in ~/.zshrc, '
        "holdfast completion fish | source in config.fish."
    )
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    parser.set_defaults(handler=_print)


def _print(options: argparse.Namespace) -> int:
    words = table()
    print({"bash": bash, "zsh": zsh, "fish": fish}[options.shell](words), end="")
    return 0


def table() -> dict[str, list[str]]:
    """What may follow each command: "" the nouns, "runs" its verbs, "runs list" its options."""
    from holdfast.cli.main import NOUNS, build

    found: dict[str, list[str]] = {"": [*NOUNS, "--help", "--version"]}
    for leaf in leaves(build(NOUNS)):
        place = leaf.prog.partition(" ")[2]
        found[place] = [
            name
            for name in leaf._option_string_actions
            if name.startswith("--")  # pyright: ignore[reportPrivateUsage]
        ]
        choices = [a.choices for a in leaf._actions if not a.option_strings and a.choices]  # pyright: ignore[reportPrivateUsage]
        found[place] += [str(each) for group in choices for each in group]
        noun, _, verb = place.partition(" ")
        if verb:
            found.setdefault(noun, ["--help"]).append(verb)
    return found


def bash(words: dict[str, list[str]]) -> str:
    """For bash: files where nothing of ours fits."""
    return f"""\
_holdfast() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} place= word known=
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
{_FIND_PLACE}
  done
{_known(words)}
  COMPREPLY=($(compgen -W "$known" -- "$current"))
}}
complete -o default -F _holdfast holdfast
"""


def zsh(words: dict[str, list[str]]) -> str:
    """For zsh: files where nothing of ours fits."""
    return f"""\
autoload -U +X compinit && compinit -u
_holdfast() {{
  local place= word known=
  for word in "${{(@)words[2,CURRENT-1]}}"; do
{_FIND_PLACE}
  done
{_known(words)}
  compadd -- ${{=known}} || _files
}}
compdef _holdfast holdfast
"""


_FIND_PLACE = """\
    case $word in -*) continue ;; esac
    case "$place" in *' '*) break ;; esac
    place="${place:+$place }$word\""""


def _known(words: dict[str, list[str]]) -> str:
    """What may follow at `$place`, in the words that bash and zsh share.

    Nouns that are commands themselves take an argument: behind it their options still fit.
    """
    own = [place for place in words if place and " " not in place and "--help" in words[place]]
    return f"""\
  case "$place" in
{_cases(words, list(words), "    ")}
    *) case "${{place%% *}}" in
{_cases(words, own, "      ")}
      esac ;;
  esac"""


def _cases(words: dict[str, list[str]], places: list[str], indent: str) -> str:
    return "\n".join(
        f"{indent}{shlex.quote(place)}) known={shlex.quote(' '.join(words[place]))} ;;"
        for place in places
    )


def fish(words: dict[str, list[str]]) -> str:
    """For fish."""
    nouns = [word for word in words[""] if not word.startswith("-")]
    lines = [f"complete -c holdfast -n __fish_use_subcommand -f -a {shlex.quote(' '.join(nouns))}"]
    for place, known in words.items():
        if not place:
            continue
        noun, _, verb = place.partition(" ")
        when = f"__fish_seen_subcommand_from {noun}"
        if verb:
            when += f"; and __fish_seen_subcommand_from {verb}"
        plain = [word for word in known if not word.startswith("-")]
        if plain:
            lines.append(
                f"complete -c holdfast -n {shlex.quote(when)} -f -a {shlex.quote(' '.join(plain))}"
            )
        lines += [
            f"complete -c holdfast -n {shlex.quote(when)} -l {word[2:]}"
            for word in known
            if word.startswith("--")
        ]
    return "\n".join(lines) + "\n"
