"""Single-token changes of a workflow, drawn by seed, and whether the rehearsal finds them.

A change drops a token, misspells it, or puts another of the same text in its place, in a `run:`,
`env:`, `if:`, `needs:` or `with:`. Drawn are those that GitHub and bash would take, and that change
what is executed: either the rehearsal finds them, or its trace differs from the true workflow's.
"""

from __future__ import annotations

import copy
import random
import re
import subprocess
from collections.abc import Iterator, Mapping, MutableMapping, MutableSequence
from dataclasses import dataclass
from typing import NamedTuple

from .rehearsal import WORKFLOWS, Rehearsed, Theatre
from .workflow import Workflow, WorkflowError, load_document, parse_document

_TOKEN = re.compile(r"&&|\|\||==|!=|>>|[\w-]+|[^\s\w]")
_OPPOSITES = {"&&": "||", "||": "&&", "==": "!=", "!=": "==", ">>": ">", ">": ">>"}
#: In which keys of a workflow tokens are changed.
_KEYS = ("env", "if", "needs", "run", "with")

#: The keys and indexes that lead to a text of a workflow's YAML.
KeyPath = tuple[str | int, ...]


class Change(NamedTuple):
    """One token of one text of a workflow, and what stands there instead ("" for nothing)."""

    file: str
    path: KeyPath
    start: int
    old: str
    new: str

    @property
    def place(self) -> str:
        """Such as `merge: steps: 5: run`; the steps are counted from 1."""
        words = [str(word + 1) if isinstance(word, int) else word for word in self.path[1:]]
        return ": ".join(words)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What became of a change: on which occasion it was found, and by which sentence."""

    change: Change
    occasion: str = ""
    sentence: str = ""

    @property
    def is_found(self) -> bool:
        return bool(self.occasion)


class Mutator:
    """Draws changes, and rehearses each."""

    def __init__(self, theatre: Theatre) -> None:
        self._theatre = theatre
        self._documents = {
            path.name: load_document(path) for path in sorted(WORKFLOWS.glob("*.yml"))
        }
        self._traces: dict[str, list[list[str]]] = {}

    def draw(self, seed: int) -> Iterator[Verdict]:
        """The verdicts on changes that change what is executed; the same for the same seed.

        A key is drawn first: most tokens are in `run:`.
        """
        rng = random.Random(seed)
        tokens: dict[str, list[tuple[str, KeyPath, re.Match[str]]]] = {key: [] for key in _KEYS}
        for file, document in self._documents.items():
            for path, text in _texts(document):
                key = next(str(key) for key in path if key in _KEYS)
                tokens[key] += [(file, path, match) for match in _TOKEN.finditer(text)]
        while True:
            file, path, match = rng.choice(tokens[rng.choice(_KEYS)])
            new = rng.choice(_replacements(match, rng))
            verdict = self.try_change(Change(file, path, match.start(), match[0], new))
            if verdict is not None:
                yield verdict

    def try_change(self, change: Change) -> Verdict | None:
        """The verdict on a change; None if GitHub or bash refuses it, or nothing comes of it."""
        document = copy.deepcopy(self._documents[change.file])
        text = _apply(document, change)
        if change.path[-1] == "run" and not _is_bash(text):
            return None
        try:
            workflow = parse_document(change.file, document)
            return self._rehearse(workflow, change)
        except WorkflowError:
            return None

    def _rehearse(self, workflow: Workflow, change: Change) -> Verdict | None:
        traces = []
        for occasion in self._theatre.occasions:
            if occasion.file == change.file:
                rehearsed = self._theatre.rehearse(workflow, occasion)
                if rehearsed.wrong:
                    sentence = rehearsed.wrong[0].partition("\n")[0]
                    return Verdict(change=change, occasion=occasion.title, sentence=sentence)
                traces.append(_sorted(rehearsed))
        if traces == self._true_traces(change.file):
            return None
        return Verdict(change=change)

    def _true_traces(self, file: str) -> list[list[str]]:
        """What the true workflow executes on its occasions."""
        if file not in self._traces:
            workflow = parse_document(file, self._documents[file])
            rehearsals = [
                self._theatre.rehearse(workflow, occasion)
                for occasion in self._theatre.occasions
                if occasion.file == file
            ]
            for rehearsed in rehearsals:
                if rehearsed.wrong:
                    raise ValueError(f"{file} is wrong as it is: {rehearsed.wrong[0]}")
            self._traces[file] = [_sorted(rehearsed) for rehearsed in rehearsals]
        return self._traces[file]


def _sorted(rehearsed: Rehearsed) -> list[str]:
    """What was executed; the programs of a pipe begin in any order."""
    return sorted(rehearsed.report.trace)


def _texts(document: Mapping[str, object]) -> Iterator[tuple[KeyPath, str]]:
    """The texts of a workflow that may be changed, with their paths."""

    def below(node: object, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
        if isinstance(node, Mapping):
            for key, value in node.items():
                yield from below(value, (*path, key))
        elif isinstance(node, list):
            for index, value in enumerate(node):
                yield from below(value, (*path, index))
        elif any(key in _KEYS for key in path):
            yield path, str(node).lower() if isinstance(node, bool) else str(node)

    yield from below(document["jobs"], ("jobs",))


def _replacements(match: re.Match[str], rng: random.Random) -> list[str]:
    """What may stand in the place of a token: nothing, a misspelling, another of the text."""
    old = match[0]
    others = sorted({*_TOKEN.findall(match.string)} - {old})
    is_word = re.fullmatch(r"[\w-]+", old) is not None
    if old.isdigit():
        misspelt = str(int(old) + 1)
    elif is_word:
        cut = rng.randrange(len(old))
        misspelt = old[:cut] + old[cut + 1 :]
    else:
        misspelt = _OPPOSITES.get(old, "")
    similar = [other for other in others if (re.fullmatch(r"[\w-]+", other) is None) != is_word]
    return ["", misspelt, *([rng.choice(similar)] if similar else [])]


def _apply(document: object, change: Change) -> str:
    """Changes the text in a document; returns the new text."""
    node = document
    for key in change.path[:-1]:
        node = node[key]  # type: ignore[index]
    last = change.path[-1]
    if not isinstance(node, MutableMapping | MutableSequence):
        raise WorkflowError(f"{change.place}: is no text")
    old = node[last]  # type: ignore[index]
    text = str(old).lower() if isinstance(old, bool) else str(old)
    new = text[: change.start] + change.new + text[change.start + len(change.old) :]
    if isinstance(node, MutableSequence) and not new:
        del node[int(last)]
    else:
        node[last] = new  # type: ignore[index]
    return new


def _is_bash(script: str) -> bool:
    return (
        subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True).returncode == 0
    )
