"""docs/older_names.md has every older name, as the tables of the package have it. Run this file to write the page."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import rewardlab.compat
from rewardlab.compat import config_keys, names

PAGE = Path(__file__).parents[2] / "docs" / "older_names.md"


def code(text: Any) -> str:
    return f"`{text}`"


def table(*rows: tuple[str, ...]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])


def names_table() -> str:
    rows = [("name", "of", "methods", "today")]
    for project, found in names.NAMES_OF.items():
        for name, row in found.items():
            methods = ", ".join(map(code, row.get("methods", ())))
            rows.append((code(name), project, methods, code(row["today"]) + (", adapter" if "adapter" in row else "")))
    return table(*rows)


def configs_table() -> str:
    rows = [("older name", "today")]
    for name, row in names.CONFIG_NAMES.items():
        rows.append((code(name), code(row["config"])))
    return table(*rows)


def keys_table() -> str:
    rows = [("older key", "today")]
    rows += [(code(old), code(today)) for old, today in config_keys.KEYS.items()]
    rows += [
        (code(f"{old}: ID"), code(f"{config_keys.KEYS[old]}: {first}ID")) for old, first in config_keys.PREFIXES.items()
    ]
    rows += [
        (code(f"{key}: {old}"), code(f"{key}: {today}"))
        for key, values in config_keys.VALUES.items()
        for old, today in values.items()
    ]
    rows += [(code(f"{old}: true"), settings(values)) for old, values in config_keys.SET.items()]
    rows += [
        (code(old), f"also {settings(values)}, unless that is given") for old, values in config_keys.IMPLIED.items()
    ]
    rows += [(code(old), f"ignored: {why}") for old, why in config_keys.DROPPED.items()]
    rows += [(code(old), f"refused: {why}") for old, why in config_keys.REFUSED.items()]
    return table(*rows)


def settings(values: dict[str, Any]) -> str:
    return ", ".join(code(f"{key}: {json.dumps(value).strip(chr(34))}") for key, value in values.items())


TABLES = {"names": names_table, "configs": configs_table, "keys": keys_table}


def with_tables(page: str) -> str:
    for name, make in TABLES.items():
        pattern = rf"<!-- {name} -->\n.*?<!-- end -->"
        assert re.search(pattern, page, re.DOTALL), f"no place for the table of {name}"
        text = f"<!-- {name} -->\n{make()}\n<!-- end -->"
        page = re.sub(pattern, lambda _, text=text: text, page, flags=re.DOTALL)  # type: ignore[misc]
    return page


def test_the_page_has_the_tables_of_the_package() -> None:
    assert PAGE.read_text() == with_tables(PAGE.read_text()), f"run: python {Path(__file__).name}"


@pytest.mark.filterwarnings("ignore::rewardlab.compat.CompatibilityNote")
def test_the_methods_that_it_names_exist() -> None:
    for name, row in names.NAMES.items():
        for method in row.get("methods", ()):
            assert callable(getattr(getattr(rewardlab.compat, name), method)), f"{name}.{method}"


def test_the_scripts_that_it_names_exist() -> None:
    for script in re.findall(r"examples/\w+/\w+\.(?:sh|py)", PAGE.read_text()):
        assert (PAGE.parents[1] / script).is_file(), script


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
