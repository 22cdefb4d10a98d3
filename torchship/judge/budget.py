"""What a judgement may cost.

The files that the checker reads may be made to cost hours: symbols times libraries, rings of
libraries, metadata without end. A judgement whose budget is spent ends as "cannot be told".
"""

import time

#: How many lookups are made between two looks at the clock.
_LOOKUPS_PER_LOOK = 64
#: A lookup takes 5 to 15 microseconds, so these stay within the bounds that SECURITY.md
#: promises: 1 s for a file of 1 MB and 5 s for any file. A real extension of 1 MB makes
#: some 10,000. In a process with a large, scattered heap a lookup takes three times as long.
_LOOKUPS_PER_MEGABYTE = 35_000
_FEW_LOOKUPS = 10_000
_MAX_LOOKUPS = 100_000
#: Beyond its lookups, a file has this processor time to read the libraries of its package.
#: The slowest verdict on a real extension took 0.42 s; the reading that is under way when
#: the time ends takes at most 1.5 s more.
_SECONDS = 3.0


class BudgetSpentError(RuntimeError):
    """The budget is spent: what was to be looked up is not known."""


def _lookups_of(size: int) -> int:
    return min(_LOOKUPS_PER_MEGABYTE * size // (1 << 20) + _FEW_LOOKUPS, _MAX_LOOKUPS)


class Budget:
    """How many lookups (of a symbol in a library, of a library in a folder) may still be made.

    The lookups of one file are counted, so that a verdict on a real extension depends on no
    clock; an emulated machine gives the same one. All budgets but those of a process also
    have processor time, for what is read: a number of seconds from now on. A budget that is
    made within `outer` ends with it.
    """

    def __init__(
        self, lookups: int, *, seconds: float | None = None, outer: "Budget | None" = None
    ) -> None:
        self.lookups = lookups
        self.seconds = seconds
        self._lookups_left = lookups
        self._lookups_until_look = 0
        self._end = None if seconds is None else time.process_time() + seconds
        self._outer = outer

    @classmethod
    def for_file(cls, size: int, outer: "Budget | None" = None) -> "Budget":
        """The budget of a file of `size` bytes; `add_file` adds a library."""
        return cls(_lookups_of(size), seconds=_SECONDS, outer=outer)

    def add_file(self, size: int) -> None:
        """Allow the lookups of one more file, within the bounds for all."""
        more = min(_lookups_of(size), _MAX_LOOKUPS - self.lookups)
        self.lookups += more
        self._lookups_left += more

    def spend(self, lookups: int = 1) -> None:
        """Count lookups. Raises BudgetSpentError."""
        self._lookups_left -= lookups
        if self._lookups_left < 0:
            raise BudgetSpentError(f"more than {self.lookups} lookups")
        self._lookups_until_look -= lookups
        if self._lookups_until_look <= 0:
            self._lookups_until_look = _LOOKUPS_PER_LOOK
            self.check_time()

    def check_time(self) -> None:
        """Look at the clock. Raises BudgetSpentError."""
        if self._end is not None and time.process_time() > self._end:
            raise BudgetSpentError(f"more than {self.seconds:g} s of processor time in all")
        if self._outer is not None:
            self._outer.check_time()
