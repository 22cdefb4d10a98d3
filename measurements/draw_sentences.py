"""Draws sentences of the documentation by a seed, for readers who say which they would rewrite.

    python measurements/draw_sentences.py [--seed N] [--count N]

Stores them in measurements/results/sentences.json and prints them, numbered. A sentence is taken
from the prose of README, CONTRIBUTING, SECURITY and docs; code, tables and the changelog are left
out. `--results FILE` adds what readers said: a JSON list for each reader of
the numbers that they would rewrite.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

REPO = Path(__file__).resolve().parents[1]
sys.path.append(str(REPO))

from measurements import storage  # noqa: E402

PATH = storage.RESULTS / "sentences.json"
_NOT_PROSE = re.compile(
    r"^( *)```.*?^\1```$|<!-- (?P<part>[\w-]+):begin.*?<!-- (?P=part):end.*?-->|<!--.*?-->"
    r"|<[^>]+>|^#.*?$|^ *\|.*?$|(?<=\n\n) {4}.*?(?=\n\n)",
    re.MULTILINE | re.DOTALL,
)
#: A full stop, a question mark or a colon that ends a line, before a capital letter or an end.
_END = re.compile(r"(?<=[.?!])\s+(?=[A-Z`*\[(])")
_FEWEST_WORDS = 5


class Sentence(NamedTuple):
    """A sentence, and the page that has it."""

    page: str
    sentence: str


def pages() -> list[Path]:
    """What people wrote for readers, in a fixed order."""
    top = [REPO / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    docs = sorted((REPO / "docs").rglob("*.md"))
    return [*top, *(page for page in docs if page.parent.name != "codes")]


def sentences_of(page: Path) -> list[Sentence]:
    """The sentences of a page without code blocks and generated parts; links are in brackets."""
    prose = _NOT_PROSE.sub("\n\n", page.read_text(encoding="utf-8"))
    blocks = re.split(r"\n\s*\n|\n(?= *[-*] | *\d+\. )", prose)
    name = page.relative_to(REPO).as_posix()
    found: list[Sentence] = []
    for block in blocks:
        words = re.sub(r"(\[[^\]]*\])\([^)]*\)", r"\1", block)
        plain = " ".join(re.sub(r"^\s*(?:[-*>]|\d+\.) ", "", words).split())
        found += [
            Sentence(name, sentence)
            for sentence in _END.split(plain)
            if len(sentence.split()) >= _FEWEST_WORDS and sentence[-1] in ".?!:"
        ]
    return found


def draw(seed: int, count: int) -> list[Sentence]:
    """So many sentences of all pages, each with the same chance, the same for a seed."""
    every_sentence = [sentence for page in pages() for sentence in sentences_of(page)]
    return random.Random(seed).sample(every_sentence, count)


def named_by_two(readers: list[list[int]]) -> list[int]:
    """The numbers that at least two readers would rewrite."""
    times = Counter(number for numbers in readers for number in set(numbers))
    return sorted(number for number, count in times.items() if count >= 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=49)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--results", type=Path, help="a JSON list of numbers for each reader")
    arguments = parser.parse_args()
    if arguments.results is not None:
        stored = storage.load(PATH)
        assert isinstance(stored, dict)
        stored["readers"] = json.loads(arguments.results.read_text(encoding="utf-8"))
        stored["named by two"] = named_by_two(stored["readers"])
        PATH.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"named by two readers: {stored['named by two']}")
        return
    drawn = draw(arguments.seed, arguments.count)
    stored = {
        "command": f"python measurements/draw_sentences.py --seed {arguments.seed}",
        "seed": arguments.seed,
        "sentences": [sentence._asdict() for sentence in drawn],
        "readers": [],
        "named by two": [],
    }
    PATH.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for number, sentence in enumerate(drawn, 1):
        print(f"{number}. {sentence.sentence}")


if __name__ == "__main__":
    main()
