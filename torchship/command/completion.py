"""`torchship completion SHELL`: prints a shell's completion, made from the parser."""

import argparse
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

# How to switch the completion on, as the script itself says.
_SWITCH_ON = {
    "bash": 'eval "$(torchship completion bash)"  # in ~/.bashrc',
    "zsh": 'eval "$(torchship completion zsh)"  # in ~/.zshrc, after compinit',
    "fish": "torchship completion fish | source  # in ~/.config/fish/config.fish",
}


@dataclass(frozen=True)
class Option:
    """An option of a command."""

    name: str
    help: str
    takes_value: bool
    choices: tuple[str, ...]


@dataclass(frozen=True)
class Words:
    """What may stand behind a command."""

    summary: str
    options: tuple[Option, ...]
    choices: tuple[str, ...]  #: of its argument; without any, files are offered


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=sorted(_SWITCH_ON), help="the shell")


def run(options: argparse.Namespace) -> int:
    from . import COMMANDS, make_parser, parser_of

    words = {"": _words_of(make_parser(), "")}
    for command in COMMANDS:
        words[command.name] = _words_of(parser_of(command), command.summary)
    write: Mapping[str, Callable[[Mapping[str, Words]], Iterable[str]]] = {
        "bash": _bash,
        "zsh": _zsh,
        "fish": _fish,
    }
    print(f"# Switch it on: {_SWITCH_ON[options.shell]}")
    print(*write[options.shell](words), sep="\n")
    return 0


def _words_of(parser: argparse.ArgumentParser, summary: str) -> Words:
    actions = parser._actions
    options = tuple(
        Option(
            name=name,
            help=" ".join((action.help or "").split()),
            takes_value=action.nargs != 0,
            choices=tuple(map(str, action.choices or ())),
        )
        for action in actions
        for name in action.option_strings
        if name.startswith("--")
    )
    choices = [word for action in actions if not action.option_strings for word in _choices(action)]
    return Words(summary=summary, options=options, choices=tuple(choices))


def _choices(action: argparse.Action) -> Iterable[str]:
    return map(str, action.choices or ())


def _bash(words: Mapping[str, Words]) -> Iterable[str]:
    yield "_torchship() {"
    yield '  local current=${COMP_WORDS[COMP_CWORD]} command="" offered files=""'
    yield "  COMPREPLY=()"
    yield "  if ((COMP_CWORD > 1)); then command=${COMP_WORDS[1]}; fi"
    yield "  case $command:${COMP_WORDS[COMP_CWORD - 1]} in"
    for name, own in words.items():
        for option in own.options:
            if option.takes_value:
                offered = shlex.quote(" ".join(option.choices))
                files = "" if option.choices else " files=yes"
                yield f"    {name}:{option.name}) offered={offered}{files} ;;"
    yield "    *)"
    yield "      case $command in"
    for name, own in words.items():
        offered = " ".join([*own.choices, *(option.name for option in own.options)])
        files = "" if own.choices else " files=yes"
        yield f"        {shlex.quote(name)}) offered={shlex.quote(offered)}{files} ;;"
    yield "        *) return ;;"
    yield "      esac"
    yield "      ;;"
    yield "  esac"
    yield '  mapfile -t COMPREPLY < <(compgen -W "$offered" -- "$current")'
    yield "  if [[ $files && $current != -* ]]; then"
    yield '    mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$current")'
    yield "  fi"
    yield "}"
    yield "complete -o filenames -F _torchship torchship"


def _zsh(words: Mapping[str, Words]) -> Iterable[str]:
    yield "_torchship() {"
    yield "  local -a commands"
    yield "  commands=("
    for name, own in words.items():
        if name:
            yield f"    {_quoted_for_zsh(name, own.summary)}"
    yield "  )"
    yield "  if ((CURRENT == 2)); then"
    yield "    _describe command commands"
    yield "    return"
    yield "  fi"
    yield "  local command=$words[2]"
    yield "  shift words"
    yield "  ((CURRENT--))"
    yield "  case $command in"
    for name, own in words.items():
        if name:
            yield f"    {name})"
            yield "      _arguments \\"
            for option in own.options:
                yield f"        {_spec_for_zsh(option)} \\"
            offered = f"({' '.join(own.choices)})" if own.choices else "_files"
            yield f"        {shlex.quote(f'*:argument:{offered}')}"
            yield "      ;;"
    yield "  esac"
    yield "}"
    yield "compdef _torchship torchship"


def _quoted_for_zsh(name: str, text: str) -> str:
    return shlex.quote(f"{name}:{text}")


def _spec_for_zsh(option: Option) -> str:
    help_text = option.help.replace("[", "(").replace("]", ")").replace(":", ",")
    spec = f"{option.name}[{help_text}]"
    if option.takes_value:
        spec += f":value:({' '.join(option.choices)})" if option.choices else ":value:_files"
    return shlex.quote(spec)


def _fish(words: Mapping[str, Words]) -> Iterable[str]:
    for name, own in words.items():
        if name:
            yield (
                "complete -c torchship -n __fish_use_subcommand -f "
                f"-a {name} -d {_quoted_for_fish(own.summary)}"
            )
        when = f"'__fish_seen_subcommand_from {name}'" if name else "__fish_use_subcommand"
        start = f"complete -c torchship -n {when}"
        if name and own.choices:
            yield f"{start} -f -a {_quoted_for_fish(' '.join(own.choices))}"
        for option in own.options:
            line = f"{start} -l {option.name[2:]} -d {_quoted_for_fish(option.help)}"
            if option.takes_value:
                line += " -r"
            if option.choices:
                line += f" -f -a {_quoted_for_fish(' '.join(option.choices))}"
            yield line


def _quoted_for_fish(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
