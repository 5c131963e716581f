"""What MkDocs does with the pages of docs/ when `make docs` builds the site: they are written for GitHub.

- A list may follow a paragraph without an empty line between them.
- Files outside of docs/ are no part of the site: links to them become their names.
- `api.md` is made here: the names that `import rewardlab` offers, and the modules behind them.
"""

import re
from typing import Any

from mkdocs.structure.files import File

import rewardlab

MODULES = {
    "Environments": ["rewardlab.envs.wrappers", "rewardlab.envs.policies"],
    "Reward models": ["rewardlab.rewards.base", "rewardlab.rewards.loading", "rewardlab.rewards.manager"],
    "Episodes": ["rewardlab.data.convert", "rewardlab.data.inspection"],
    "Configs": ["rewardlab.config.load", "rewardlab.config.schema"],
    "Batches": ["rewardlab.types"],
}
CODE = re.compile(r"(^```.*?^```[^\n]*$)", re.MULTILINE | re.DOTALL)
LIST_AFTER_TEXT = re.compile(r"^((?![ ]*(?:[-*]|\d+\.) |[ ]{2,}|#)[^\n|]+\n)(?=(?:-|\d+\.) )", re.MULTILINE)
LINK_OUTSIDE = re.compile(
    r"\[([^]]+)\]\((?:\.\./)+(?:README|CONTRIBUTING|CHANGELOG|examples|rewardlab|benchmarks)[^)]*\)"
)


def on_files(files: Any, config: Any) -> Any:
    files.append(File.generated(config, "api.md", content=api_page()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    parts = CODE.split(markdown)
    parts[::2] = [LINK_OUTSIDE.sub(r"\1", LIST_AFTER_TEXT.sub(r"\1\n", text)) for text in parts[::2]]
    return "".join(parts)


def api_page() -> str:
    """Return the page that mkdocstrings fills with signatures and docstrings."""
    lines = ["# API", "", "[python.md](python.md) shows how the first section is used.", "", "## rewardlab", ""]
    lines += [f"::: rewardlab.{name}\n" for name in rewardlab.__all__]
    for title, modules in MODULES.items():
        lines += [f"## {title}", "", *(f"::: {module}\n" for module in modules)]
    return "\n".join(lines)
