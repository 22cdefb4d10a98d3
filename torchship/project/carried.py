"""The report of `torchship init`: one line for each value that the repository's build has."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum


class Fate(Enum):
    """What became of a value."""

    CARRIED = "carried over"
    NEEDLESS = "not needed"
    LEFT = "left to you"


#: Which of the two runs of setup.py saw a value, where not both did.
WITH_ALONE, WITHOUT_ALONE = "with CUDA alone", "without CUDA alone"


@dataclass(frozen=True, kw_only=True)
class Line:
    """One value: where it was seen, and where it went, or why not."""

    fate: Fate
    what: str
    source: str
    target: str = ""  #: a key of build_matrix.yaml or pyproject.toml
    why: str = ""


@dataclass
class Report:
    """The lines in the order in which they were found."""

    lines: list[Line] = field(default_factory=list)

    def carried(self, what: str, source: str, target: str, why: str = "") -> None:
        self.add(Line(fate=Fate.CARRIED, what=what, source=source, target=target, why=why))

    def needless(self, what: str, source: str, why: str) -> None:
        self.add(Line(fate=Fate.NEEDLESS, what=what, source=source, why=why))

    def left(self, what: str, source: str, why: str) -> None:
        self.add(Line(fate=Fate.LEFT, what=what, source=source, why=why))

    def names(self, what: str) -> bool:
        return any(line.what == what for line in self.lines)

    def retarget(self, what: str, target: str) -> None:
        """Says that a value went elsewhere than was said."""
        self.lines = [
            replace(line, target=target) if line.what == what and line.target else line
            for line in self.lines
        ]

    def add(self, line: Line) -> None:
        # What two extensions say alike is one value of the joined build.
        if line not in self.lines:
            self.lines.append(line)

    def count(self, fate: Fate) -> int:
        return sum(line.fate is fate for line in self.lines)

    def text(self) -> Iterator[str]:
        counts = [f"{self.count(fate)} {fate.value}" for fate in Fate]
        yield f"{len(self.lines)} values: {', '.join(counts)}"
        for fate in Fate:
            for line in self.lines:
                if line.fate is fate:
                    target = f" -> {line.target}" if line.target else ""
                    why = f": {line.why}" if line.why else ""
                    said = f"{fate.value}: {line.what} ({line.source}){target}{why}"
                    yield f"  {' '.join(said.split())}"  # a license may have several lines
