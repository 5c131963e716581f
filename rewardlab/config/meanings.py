"""What each key of a configuration means, as `rewardlab.config.schema` says it: in the comment beside the key.

The comments are read from the source, so that a meaning stands in one place, where the key is defined.
"""

import ast
import functools
import inspect
import io
import textwrap
import tokenize
from collections.abc import Iterator
from typing import Any

import yaml

from rewardlab.config import schema
from rewardlab.config.schema import ExperimentConfig
from rewardlab.config.schema_keys import inner_sections, key_choices

COLUMN, WIDTH = 46, 118  # where meanings begin, unless the value is longer, and where they end
INHERITS = "env.eval."  # its keys are those of env.train, and explained there


@functools.cache
def key_meanings() -> dict[str, str]:
    """Return the meaning of each key and block by its dotted name; the items of a list share the name of the list."""
    return dict(_meanings_in(ExperimentConfig, "", _read_source()))


def explain(text: str) -> str:
    """Return the YAML of a whole configuration with the meaning of each key beside it, as a comment."""
    notes: dict[int, str] = {}
    _find_lines(yaml.compose(text), "", notes)
    return "\n".join(_with_note(line, notes.get(number, "")) for number, line in enumerate(text.split("\n")))


def _with_note(line: str, note: str) -> str:
    """Return a line with a comment behind it, and below it what of the comment is too long for it."""
    if not note:
        return line
    first, *rest = textwrap.wrap(note, WIDTH - COLUMN, break_long_words=False, break_on_hyphens=False)
    below = [f"{' ' * COLUMN}# {part}" for part in rest]
    return "\n".join([f"{line.ljust(COLUMN - 2)}  # {first}", *below])


def _find_lines(node: yaml.Node | None, prefix: str, notes: dict[int, str]) -> None:
    """Collect the meanings of keys by the lines on which these stand."""
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _find_lines(item, prefix, notes)
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        name = f"{prefix}{key.value}"
        # A text over several lines, or with a comment sign at its end, would take a comment for a part of itself.
        if key.start_mark.line == value.start_mark.line == value.end_mark.line or not isinstance(
            value, yaml.ScalarNode
        ):
            notes[key.start_mark.line] = "" if name.startswith(INHERITS) else key_meanings().get(name, "")
        _find_lines(value, f"{name}.", notes)


def _meanings_in(cls: Any, prefix: str, source: dict[str, dict[str, str]]) -> Iterator[tuple[str, str]]:
    choices = key_choices(cls)
    for name, sections in inner_sections(cls):
        meaning = source[cls.__name__].get(name) or next((source[s.__name__][""] for s in sections), "")
        listed = choices.get(name, ["true", "false"])  # of true and false, the value says that they are meant
        yield prefix + name, f"{meaning} ({' | '.join(listed)})" if listed != ["true", "false"] else meaning
        for section in sections:
            yield from _meanings_in(section, f"{prefix}{name}.", source)


def _read_source() -> dict[str, dict[str, str]]:
    """Return, by class and field, the comments of the schema; under "" the first sentence of a class's docstring."""
    text = inspect.getsource(schema)
    comments = _comments(text)
    found: dict[str, dict[str, str]] = {}
    for cls in (node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)):
        fields = (node for node in cls.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name))
        said = {ast.unparse(field.target): _comment_of(field, comments) for field in fields}
        docstring = (ast.get_docstring(cls) or "").partition("\n\n")[0]
        found[cls.name] = {"": " ".join(docstring.split()), **said}
    return found


def _comments(text: str) -> dict[int, tuple[str, bool]]:
    """Return the comments of a source by line: the text, and whether it has the line for itself."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    found = (token for token in tokens if token.type == tokenize.COMMENT)
    return {token.start[0]: (token.string.lstrip("# "), token.line.lstrip().startswith("#")) for token in found}


def _comment_of(field: ast.AnnAssign, comments: dict[int, tuple[str, bool]]) -> str:
    """Return the comment behind a field, or else the lines directly above it."""
    end = field.end_lineno or field.lineno
    if end in comments:
        return comments[end][0]
    above: list[str] = []
    line = field.lineno - 1
    while line in comments and comments[line][1]:
        above.insert(0, comments[line][0])
        line -= 1
    return " ".join(above)
