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
    cases = "\n".join(
        f"    {shlex.quote(place)}) words={shlex.quote(' '.join(known))} ;;"
        for place, known in words.items()
    )
    return f"""\
_holdfast() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} place= word words=
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case $word in -*) continue ;; esac
    case "$place" in *' '*) break ;; esac
    place="${{place:+$place }}$word"
  done
  case "$place" in
{cases}
    *) case "${{place%% *}}" in
{_nouns(words)}
      esac ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _holdfast holdfast
"""


def _nouns(words: dict[str, list[str]]) -> str:
    """Nouns that are commands themselves, and take an argument: their options still fit."""
    own = [place for place in words if place and " " not in place and "--help" in words[place]]
    return "\n".join(
        f"      {shlex.quote(place)}) words={shlex.quote(' '.join(words[place]))} ;;"
        for place in own
    )


def zsh(words: dict[str, list[str]]) -> str:
    """For zsh, by its own way to use bash's."""
    head = "autoload -U +X compinit && compinit -u\nautoload -U +X bashcompinit && bashcompinit\n"
    return head + bash(words)


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
