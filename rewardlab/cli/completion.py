"""`rewardlab completion`: a script with which a shell completes commands, options, configs and keys."""

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path

from rewardlab.cli.command import Commands, add_command
from rewardlab.screen import PrintableStream

SHELLS = ("bash", "zsh")
# zsh runs completions of bash.
ZSH = "autoload -Uz compinit bashcompinit\n(( $+functions[compdef] )) || compinit\nbashcompinit\n"


def add_to(commands: "Commands[argparse.ArgumentParser]") -> None:
    example = "rewardlab completion bash > ~/.rewardlab_completion; echo 'source ~/.rewardlab_completion' >> ~/.bashrc"
    command = add_command(commands, "completion", "print a script that completes commands in a shell", example)
    command.add_argument("shell", choices=SHELLS)

    def _print(arguments: argparse.Namespace) -> None:
        PrintableStream().write(completion_script(arguments.shell, commands.choices))

    command.set_defaults(handler=_print)


def completion_script(shell: str, commands: dict[str, argparse.ArgumentParser]) -> str:
    """Return the script for a shell, from the arguments of the commands and the keys of a config as they are now."""
    from rewardlab.config import config_names
    from rewardlab.config.schema_keys import key_choices, schema_keys, section_keys

    parsers = dict(_with_verbs(commands))
    take_keys = [name for name, parser in parsers.items() if any(a.dest == "overrides" for a in parser._actions)]
    parts = {
        "COMMANDS": "|".join(parsers),
        "TAKE_KEYS": "|".join(f'"{name}"' for name in take_keys),
        "CONFIGS": " ".join(config_names()),
        "KEYS": " ".join(sorted(set(schema_keys()) - set(section_keys()))),
        "KEY_CHOICES": _branches((key, _set("values", choices)) for key, choices in key_choices().items()),
        "OPTION_CHOICES": _branches(_after_options(parsers)),
        "OPTIONS": _branches(_words_of(parsers, list(commands))),
    }
    script = Path(__file__).with_name("completion.sh").read_text()
    for name, text in parts.items():
        script = script.replace(f"@{name}@", text)
    return (ZSH if shell == "zsh" else "") + script


def _with_verbs(commands: dict[str, argparse.ArgumentParser]) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield each command, and the verbs of those that have some, such as `data info`."""
    for name, parser in commands.items():
        yield name, parser
        yield from ((f"{name} {verb}", verbs) for verb, verbs in _verbs(parser).items())


def _verbs(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    groups = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return next((dict(group.choices) for group in groups), {})


def _words_of(parsers: dict[str, argparse.ArgumentParser], commands: list[str]) -> Iterator[tuple[str, str]]:
    """Yield what completes the words of each command: its options, and its verbs or the choices of its argument."""
    yield "", _set("values", commands)
    for name, parser in parsers.items():
        options = [text for action in parser._actions for text in action.option_strings]
        words = [*_verbs(parser), *(word for action in _arguments(parser) for word in action.choices or ())]
        yield name, " ".join([_set("options", options), *([_set("values", words)] if words else [])])


def _after_options(parsers: dict[str, argparse.ArgumentParser]) -> Iterator[tuple[str, str]]:
    """Yield what completes the value of each option that takes one: its choices, else names of files."""
    for name, parser in parsers.items():
        for action in parser._actions:
            if action.nargs != 0:
                reply = _set("values", list(action.choices)) if action.choices else "return"
                yield from ((f"{name} {text}", reply) for text in action.option_strings)


def _arguments(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    positional = (action for action in parser._actions if not action.option_strings)
    return [action for action in positional if not isinstance(action, argparse._SubParsersAction)]


def _set(variable: str, words: Iterable[str]) -> str:
    return f'{variable}="{" ".join(words)}"'


def _branches(cases: Iterable[tuple[str, str]]) -> str:
    """Return the branches of a `case`."""
    return "\n".join(f'            "{pattern}") {commands} ;;' for pattern, commands in cases)
