"""Writes docs/api.md from the docstrings of the public package.

    python scripts/api_page.py            # write it
    python scripts/api_page.py --check    # exit code 1 if it is not what would be written

The sources are parsed, not imported: neither torch nor a built package is needed.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import griffe

REPO = Path(__file__).resolve().parents[1]
PAGE = REPO / "docs" / "api.md"
MODULES = ("lltm_conda", "lltm_conda.jit")
HEADER = (
    "# API\n\n"
    "Written by `python scripts/api_page.py` from the docstrings; change those, not this page.\n"
)
# Of a class, the methods that somebody calls or overrides.
METHODS = ("forward", "reset_parameters", "cell", "load_cell", "from_cells")


def markdown(text: str) -> str:
    """reStructuredText's roles, literals and literal blocks as Markdown."""
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text)
    text = text.replace("``", "`")
    block = re.compile(r"::\n\n((?:(?: {4}.*)?\n)*(?: {4}.*))")
    return block.sub(lambda found: ":\n\n```python\n" + _dedent(found[1]) + "\n```", text)


def _dedent(block: str) -> str:
    return "\n".join(line[4:] for line in block.split("\n"))


def signature(function: griffe.Function, name: str, skip_self: bool) -> str:
    """`name(a, *, b=1) -> type`."""
    words: list[str] = []
    starred = False
    for parameter in list(function.parameters)[1 if skip_self else 0 :]:
        kind = parameter.kind
        if kind is griffe.ParameterKind.keyword_only and not starred:
            words.append("*")
            starred = True
        prefix = {
            griffe.ParameterKind.var_positional: "*",
            griffe.ParameterKind.var_keyword: "**",
        }.get(kind, "")
        starred = starred or prefix == "*"
        word = prefix + parameter.name
        if parameter.annotation is not None:
            word += f": {parameter.annotation}"
        if parameter.default is not None and not prefix:
            word += f" = {parameter.default}" if ":" in word else f"={parameter.default}"
        words.append(word)
    returns = "" if function.returns is None or name[:1].isupper() else f" -> {function.returns}"
    line = f"{name}({', '.join(words)}){returns}"
    if len(line) <= 88:
        return line
    return f"{name}(\n    " + ",\n    ".join(words) + f",\n){returns}"


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
        blocks.append(f"```python\n{signature(found, found.name, skip_self=level > 3)}\n```")
    elif isinstance(found, griffe.Class):
        constructor = found.members.get("__init__")
        takes_arguments = not any("Error" in str(base) for base in found.bases)
        if isinstance(constructor, griffe.Function) and takes_arguments:
            blocks.append(f"```python\n{signature(constructor, found.name, skip_self=True)}\n```")
    blocks += docstring(found)
    if isinstance(found, griffe.Class) and "Module" in map(_last_name, found.bases):
        for name in METHODS:
            method = found.members.get(name)
            if method is not None:
                blocks += describe(method.final_target if method.is_alias else method, level + 1)
    return blocks


def _last_name(base: object) -> str:
    return str(base).split(".")[-1]


def render() -> str:
    """The whole page."""
    package = griffe.load(MODULES[0], search_paths=[REPO], resolve_aliases=True)
    blocks = [HEADER.rstrip()]
    for name in MODULES:
        module = package if name == MODULES[0] else package[name.removeprefix(MODULES[0] + ".")]
        blocks += [f"## {name}", *docstring(module)]
        for public in module.exports or []:
            if str(public).startswith("__"):
                continue
            member = module.members[str(public)]
            if member.is_module:  # `from .reference import reference` hides the module
                member = member.members[str(public)]
            blocks += describe(member.final_target if member.is_alias else member, 3)
    return "\n\n".join(blocks) + "\n"


def main() -> int:
    page = render()
    if sys.argv[1:] == ["--check"]:
        if PAGE.is_file() and PAGE.read_text() == page:
            return 0
        print(f"{PAGE} does not say what the docstrings say; run: python scripts/api_page.py")
        return 1
    if sys.argv[1:]:
        print(f"usage: python scripts/api_page.py [--check], got {' '.join(sys.argv[1:])}")
        return 2
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
