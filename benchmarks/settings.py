"""What a command that measures was asked to do; ``benchmarks/__main__.py`` parses it."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    command: str
    """The command's name, such as `cell` or `random`."""
    command_line: str
    """The whole command, as the result file states it."""
    device: str
    """`cpu` or `cuda`."""
    protocol: str
    threads: int = 1
    """torch's threads."""
    contenders: tuple[str, ...] = ()
    """The contenders to measure; empty means all."""
    seconds: float = 1.0
    """The time for each contender and size, in all rounds together."""
    rounds: int = 15
    deadline: float | None = None
    """The seconds after which no further size begins; None means that every size is measured."""
    seed: int = 0
    again: int = 0
    """How often a random draw where ours is slower is measured again."""
    output: Path | None = None
    """The result file; None stores nothing."""

    @property
    def is_random(self) -> bool:
        return self.command == "random"
