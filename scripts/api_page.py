"""Writes docs/api.md from the docstrings of the public package.

    python scripts/api_page.py

The sources are parsed, not imported: neither torch nor a built package is needed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import griffe

REPO = Path(__file__).resolve().parents[1]
PAGE = REPO / "docs" / "api.md"
MODULES = ("lltm_conda", "lltm_conda.jit")
HEADER = (
    "# API\n\n"
    "Written by `python scripts/api_page.py` from the docstrings; change those, not this page.\n"
)
# The methods of a class that users call or override.
METHODS = ("forward", "reset_parameters", "cell", "load_cell", "from_cells")


def markdown(text: str) -> str:
    """reStructuredText's roles, literals and literal blocks as Markdown."""
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text)
    text = text.replace("``", "`")
    block = re.compile(r"::\n\n((?:(?: {4}.*)?\n)*(?: {4}.*))")
    return block.sub(lambda found: f":\n\n```python\n{textwrap.dedent(found[1])}\n```", text)


def signature(function: griffe.Function, name: str) -> str:
    """`name(a, *, b=1) -> type`; a long one with one parameter per line."""
    line = function.signature(return_type=False, name=name)
    returns = f" -> {function.returns}" if function.name != "__init__" and function.returns else ""
    if len(line + returns) <= 88:
        return line + returns
    # A comma after the last parameter makes ruff break the line.
    ruff = [sys.executable, "-m", "ruff", "format", "--line-length", "88", "-"]
    code = f"def {line[:-1]},){returns}: ..."
    run = subprocess.run(ruff, input=code, capture_output=True, text=True, check=True)
    return run.stdout.strip().removeprefix("def ").removesuffix(": ...")


def docstring(found: griffe.Object) -> list[str]:
    """The docstring's sections as Markdown blocks."""
    blocks: list[str] = []
    if found.docstring is None:
        raise SystemExit(f"{found.path} is public and has no docstring; write one")
    for section in found.docstring.parse("google", warnings=False):
        if isinstance(section, griffe.DocstringSectionText):
            blocks.append(markdown(section.value))
            continue
        title = section.kind.value.replace("parameters", "arguments").capitalize()
        rows = []
        for item in section.value:
            named = isinstance(section, griffe.DocstringSectionRaises)
            name = str(item.annotation) if named else getattr(item, "name", "")
            text = " ".join(markdown(item.description).split())
            rows.append(f"- `{name}`: {text}" if name else f"- {text}")
        blocks.append(f"{title}:\n\n" + "\n".join(rows))
    return blocks


def describe(found: griffe.Object, level: int) -> list[str]:
    """One public object: heading, signature, docstring, and a class's methods."""
    blocks = [f"{'#' * level} `{found.name}`"]
    if isinstance(found, griffe.Function):
        blocks.append(f"```python\n{signature(found, found.name)}\n```")
    elif isinstance(found, griffe.Class):
        constructor = found.members.get("__init__")
        takes_arguments = not any("Error" in str(base) for base in found.bases)
        if isinstance(constructor, griffe.Function) and takes_arguments:
            blocks.append(f"```python\n{signature(constructor, found.name)}\n```")
    blocks += docstring(found)
    if isinstance(found, griffe.Class) and any(str(b).endswith("Module") for b in found.bases):
        for name in METHODS:
            method = found.members.get(name)
            if method is not None:
                blocks += describe(method.final_target if method.is_alias else method, level + 1)
    return blocks


def render() -> str:
    """The whole page."""
    package = griffe.load(MODULES[0], search_paths=[REPO], resolve_aliases=True)
    blocks = [HEADER.rstrip()]
    for name in MODULES:
        module = package.modules_collection[name]
        blocks += [f"## {name}", *docstring(module)]
        for public in module.exports or []:
            if str(public).startswith("__"):
                continue
            member = module.members[str(public)]
            if member.is_module:  # `from .reference import reference` hides the module
                member = member.members[str(public)]
            blocks += describe(member.final_target if member.is_alias else member, 3)
    return "\n\n".join(blocks) + "\n"


if __name__ == "__main__":
    PAGE.write_text(render())
