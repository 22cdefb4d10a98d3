"""Writes the list of rules, a page for each code that has a message, one for the others, and lists.

    python -m docs._ext.code_pages

The rules are those of the modules in torchship/judge/rules, by their ranks; the list of them is in
`__init__.py` there, since an import of a package looks into no folder. The codes are those of
torchship/judge/words/codes.py and of the rules, the words their own or those of meanings.json, the
messages those of messages.py. What stands between two comments in a page, such as its commands,
is written by hand there and kept.
tests/torchship/doctor/test_doctor_messages.py and test_rules.py compare what is written with them.
"""

from __future__ import annotations

import json
import pkgutil
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

from torchship.doctor.reasons import meaning
from torchship.judge import rules
from torchship.judge.rules import CODES, Rule
from torchship.judge.words import codes, faults, messages

DOCS = Path(__file__).resolve().parents[1]

FOLDER = DOCS / "fails" / "codes"
INDEX = DOCS / "fails" / "messages.md"
OTHERS = FOLDER / "others.md"
CODES_INDEX = FOLDER / "index.md"
BEGIN = "<!-- {}:begin, written by docs/_ext/code_pages.py -->\n"
END = "<!-- {}:end -->\n"
BY_HAND = re.compile(r"<!-- by hand:begin -->\n.*?<!-- by hand:end -->\n", re.DOTALL)
RULES_FILE = Path(rules.__file__)
RULES_BEGIN = "# rules:begin, written by docs/_ext/code_pages.py from the modules of this folder\n"
RULES_END = "# rules:end\n"
WIDTH = 100  # of a line, as ruff has it
GROUPS = {
    "1": "torch and its ABI",
    "2": "Files, packages and Python",
    "3": "The system",
    "4": "CUDA, driver and GPU",
    "5": "What the dynamic linker looks up",
    "6": "Caches of code compiled at run time",
    "7": "Packages around their binaries",
    "8": "Compiling",
    "9": "The doctor itself",
}

#: What stands before the table of the classes.
CLASSES = """## Classes of faults

Most faults of torch extensions, of any package, are of one of fifteen classes, whose number is \
the field `fault` of [a finding](../api.md#what-comes-back). The last column says how a test shows \
that torch-doctor or the loader finds them:

- *injected*: the test really causes the fault, on any machine;
- *GPU machine*: a test marked `cuda` causes it;
- *simulated*: one fact is replaced, such as the version of the driver, and the rest of the check \
is real."""


def verbatim(message: str) -> str:
    """A message in Markdown, which may hold single backticks."""
    return f"``{message}``" if "`" in message else f"`{message}`"


def examples(code: codes.Code) -> list[str]:
    return [message.example for message in messages.MESSAGES if message.code is code]


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def has_page(code: codes.Code) -> bool:
    """Whether a code has a page of its own: somebody can meet it as a message."""
    return any(message.code is code for message in messages.MESSAGES)


def link_to(code: codes.Code) -> str:
    """The address of what is written about a code, from the folder of the pages."""
    return f"{code.lower()}.md" if has_page(code) else f"{OTHERS.name}#{code.lower()}"


def page_of(code: codes.Code, by_hand: str) -> str:
    meaning_words = meaning.meaning_of(code)
    parts = [f"# {code}: {code.heading}", "## Message"]
    parts += [f"### {verbatim(example)}" for example in examples(code)]
    parts += ["## Cause", meaning_words.why, "## Fix", meaning_words.fix]
    if by_hand:
        parts.append(by_hand.rstrip("\n"))
    if code is codes.TORCH_LACKS_SYMBOLS:
        parts += ["### Which release fits which torch", releases()]
    parts.append(
        f"[`torch-doctor {code}`](../doctor.md) prints the cause and the fix. "
        "[All codes](index.md), [all messages](../messages.md)"
    )
    return "\n\n".join(parts) + "\n"


def releases() -> str:
    """The release of well-known packages for each torch, as the doctor knows them."""
    (path,) = (DOCS.parent / "torchship" / "doctor").rglob("pairs.json")
    known = json.loads(path.read_text(encoding="utf-8"))
    packages: dict[str, dict[str, str]] = known["releases"]
    minors = sorted(
        {minor for pairs in packages.values() for minor in pairs},
        key=lambda minor: [*map(int, minor.split("."))],
    )
    lines = [row("torch", *packages), "|---" * (1 + len(packages)) + "|"]
    lines += [
        row(minor, *(pairs.get(minor, "").replace(" ", ", ") for pairs in packages.values()))
        for minor in minors
    ]
    legend = (
        "The best release stands first, and 0.24 means every 0.24.x. An empty cell: no release is "
        f"known. From {known['source']}."
    )
    return "\n".join([*lines, "", legend])


def page_of_others() -> str:
    """The codes that nobody meets as a message, each under its own name, which is its anchor."""
    parts = [
        "# Codes without a message",
        "torch-doctor finds these by itself, in the files and in the environment. `torch-doctor "
        "TD122` prints what is written here. [All codes](index.md)",
    ]
    for code in sorted(CODES.values()):
        if not has_page(code):
            words = meaning.meaning_of(code)
            parts += [f"## {code}", f"**{code.heading}.** {words.why}", f"*Fix.* {words.fix}"]
    return "\n\n".join(parts) + "\n"


def index_of_codes(proofs: dict[str, str]) -> str:
    parts = [
        "# Codes",
        "Each finding of `torch-doctor` has a code, which keeps its meaning for ever: workflows "
        "and [allow-lists](../doctor.md#in-a-workflow) name it. `torch-doctor TD110` prints what "
        "is written here about it.",
    ]
    for digit, title in GROUPS.items():
        rows = [
            f"| [{code}]({link_to(code)}) | {code.heading} |"
            for code in sorted(CODES.values())
            if code[2] == digit
        ]
        parts.append("\n".join([f"## {title}\n", "| code | meaning |", "|---|---|", *rows]))
    parts += [CLASSES, table_of_classes(proofs)]
    own = [code.lower() for code in sorted(CODES.values()) if has_page(code)]
    names = "\n".join([*own, OTHERS.stem])
    parts.append(f"<!-- site\n```{{toctree}}\n:hidden:\n\n{names}\n```\n-->")
    return "\n\n".join(parts) + "\n"


def list_of_messages() -> str:
    """Each message with its meaning; the pages of their codes have them as headings, for the
    search. A list and no table, because a phone is narrower than a message."""
    parts = []
    for digit, title in GROUPS.items():
        lines = [
            f"- {verbatim(message.example)}:\n  {message.code.heading} "
            f"([{message.code}](codes/{link_to(message.code)}))"
            for message in messages.MESSAGES
            if message.code[2] == digit
        ]
        if lines:
            parts.append(f"## {title}\n\n" + "\n".join(lines))
    return "\n\n".join(parts)


def table_of_classes(proofs: dict[str, str]) -> str:
    """The classes of faults, the codes of each, and how each is proven, which is kept."""
    by_fault: dict[int | None, list[codes.Code]] = {}
    for code in sorted(CODES.values()):
        number = meaning.meaning_of(code).fault
        by_fault.setdefault(number, []).append(code)
    lines = [row("class", "codes", "proof"), "|---" * 3 + "|"]
    for fault in (value for value in vars(faults).values() if isinstance(value, faults.Fault)):
        links = (f"[{code}]({link_to(code)})" for code in by_fault[fault])
        lines.append(row(f"{fault}. {fault.title}", ", ".join(links), proofs[str(int(fault))]))
    return "\n".join(lines)


def filled(path: Path, name: str, content: str) -> str:
    """The page with this between its markers."""
    begin, end = BEGIN.format(name), END.format(name)
    before, _, rest = path.read_text(encoding="utf-8").partition(begin)
    return f"{before}{begin}\n{content}\n\n{end}{rest.partition(end)[2]}"


def by_hand(path: Path) -> str:
    """The part of a page that is written by hand; "" if it has none."""
    found = BY_HAND.search(path.read_text(encoding="utf-8")) if path.exists() else None
    return found[0] if found else ""


def pages() -> dict[Path, str]:
    """The content of every file that is written."""
    own = {FOLDER / f"{code.lower()}.md": code for code in CODES.values() if has_page(code)}
    content = {path: page_of(code, by_hand(path)) for path, code in own.items()}
    content[OTHERS] = page_of_others()
    content[INDEX] = filled(INDEX, "messages", list_of_messages())
    stored = CODES_INDEX.read_text(encoding="utf-8")
    proofs = dict(re.findall(r"^\| (\d+)\. .* \| ([\w ]+) \|$", stored, re.MULTILINE))
    content[CODES_INDEX] = index_of_codes(proofs)
    return content


def rules_found() -> dict[str, Rule]:
    """The rules in the modules of their folder, such as `host.GLIBC`, by their ranks."""
    found: dict[str, Rule] = {}
    for module in pkgutil.iter_modules(rules.__path__):
        names = vars(import_module(f"{rules.__name__}.{module.name}"))
        found |= {f"{module.name}.{n}": rule for n, rule in names.items() if type(rule) is Rule}
    by_rank: dict[int, str] = {}
    for name, rule in found.items():
        other = by_rank.setdefault(rule.rank, name)
        if other != name:
            sys.exit(f"{name} and {other} have one rank, {rule.rank}: give one of them another")
    return {name: found[name] for _, name in sorted(by_rank.items())}


def list_of_rules() -> str:
    """The module with the list of rules, as it is to be."""
    names = [*rules_found()]
    modules = sorted({name.partition(".")[0] for name in names})
    line = f"from . import {', '.join(modules)}"
    if len(line) > WIDTH:
        line = "\n".join(["from . import (", *(f"    {name}," for name in modules), ")"])
    content = [
        line,
        "from .rule import Rule as Rule",
        "",
        "#: By their ranks.",
        "RULES: tuple[Rule, ...] = (",
        *(f"    {name}," for name in names),
        ")",
    ]
    begin, end = RULES_BEGIN, RULES_END
    before, _, rest = RULES_FILE.read_text(encoding="utf-8").partition(begin)
    return f"{before}{begin}{chr(10).join(content)}\n{end}{rest.partition(end)[2]}"


def main() -> None:
    right = list_of_rules()
    if right != RULES_FILE.read_text(encoding="utf-8"):
        RULES_FILE.write_text(right, encoding="utf-8")
        # This process has imported the old list, and its codes.
        subprocess.run([sys.executable, "-m", "docs._ext.code_pages"], check=True)
        return
    FOLDER.mkdir(exist_ok=True)
    written = pages()
    for path in FOLDER.glob("*.md"):
        if path not in written:
            path.unlink()
    for path, content in written.items():
        path.write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
