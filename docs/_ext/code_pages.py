"""Writes a page for each code of torch-doctor, and the messages of "When it fails".

    python -m docs._ext.code_pages

The codes are those of torchship/judge/codes.py and of the rules, the words their own or those of
meanings.json, the messages those of messages.py. tests/torchship/doctor/test_compat_docs.py
compares what is written with them.
"""

from __future__ import annotations

import re
from pathlib import Path

from torchship.doctor import meaning
from torchship.judge import codes, messages
from torchship.judge.rules import CODES

DOCS = Path(__file__).resolve().parents[1]

FOLDER = DOCS / "fails" / "codes"
INDEX = DOCS / "fails" / "messages.md"
BEGIN = "<!-- messages:begin, written by docs/_ext/code_pages.py -->\n"
END = "<!-- messages:end -->\n"
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


def verbatim(message: str) -> str:
    """A message in Markdown, which may hold single backticks."""
    return f"``{message}``" if "`" in message else f"`{message}`"


def examples(code: codes.Code) -> list[str]:
    return [message.example for message in messages.MESSAGES if message.code is code]


def page_of(code: codes.Code) -> str:
    meaning_words = meaning.meaning_of(code)
    messages_of_code = examples(code)
    parts = [f"# {code}: {code.heading}", "## Message"]
    parts += [f"### {verbatim(example)}" for example in messages_of_code]
    if not messages_of_code:
        parts.append("None of its own: torch-doctor finds it in the files.")
    parts += ["## Cause", meaning_words.why, "## Fix", meaning_words.fix]
    if meaning_words.fault is not None:
        title = next(t for n, t in troubleshooting_titles() if n == meaning_words.fault)
        anchor = slug(f"{meaning_words.fault}. {title}")
        parts.append(
            f"More: [class {meaning_words.fault}](../troubleshooting.md#{anchor}) of the fifteen "
            f"classes of faults, *{title}*."
        )
    parts.append(
        f"`torch-doctor {code}` prints this page. [All codes](index.md), "
        "[all messages](../messages.md)"
    )
    return "\n\n".join(parts) + "\n"


def troubleshooting_titles() -> list[tuple[int, str]]:
    page = (DOCS / "fails" / "troubleshooting.md").read_text(encoding="utf-8")
    titles = re.findall(r"^## (\d+)\. (.*)$", page, re.MULTILINE)
    return [(int(number), title) for number, title in titles]


def slug(title: str) -> str:
    """The anchor that Markdown gives a heading."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def index_of_codes() -> str:
    parts = [
        "# Codes",
        "Each finding of `torch-doctor` has a code, which keeps its meaning for ever: workflows "
        "and [allow-lists](../doctor.md#in-a-workflow) name it. `torch-doctor TD110` prints what "
        "is written here about it.",
    ]
    for digit, title in GROUPS.items():
        rows = [
            f"| [{code}]({code.lower()}.md) | {code.heading} |"
            for code in sorted(CODES.values())
            if code[2] == digit
        ]
        parts.append("\n".join([f"## {title}\n", "| code | meaning |", "|---|---|", *rows]))
    names = "\n".join(code.lower() for code in sorted(CODES))
    parts.append(f"<!-- site\n```{{toctree}}\n:hidden:\n\n{names}\n```\n-->")
    return "\n\n".join(parts) + "\n"


def message_rows() -> str:
    """A row for each message; the pages of their codes have them as headings, for the search."""
    rows = ["| message | means | code |", "|---|---|---|"]
    for message in messages.MESSAGES:
        code = message.code
        link = f"[{code}](codes/{code.lower()}.md)"
        rows.append(f"| {verbatim(message.example)} | {code.heading} | {link} |")
    return "\n".join(rows) + "\n"


def pages() -> dict[Path, str]:
    """The content of every file that is written."""
    content = {FOLDER / f"{code.lower()}.md": page_of(code) for code in CODES.values()}
    content[FOLDER / "index.md"] = index_of_codes()
    before, _, rest = INDEX.read_text(encoding="utf-8").partition(BEGIN)
    content[INDEX] = before + BEGIN + "\n" + message_rows() + "\n" + END + rest.partition(END)[2]
    return content


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    written = pages()
    for path in FOLDER.glob("*.md"):
        if path not in written:
            path.unlink()
    for path, content in written.items():
        path.write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
