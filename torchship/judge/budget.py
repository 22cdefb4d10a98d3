"""What reading may cost a run.

The files of an environment may be made to cost hours or all memory: symbols times libraries, rings
of libraries, metadata without end. One budget of time and bytes belongs to the run, and each
reader asks it. Of what it does not suffice for, nothing can be told.
"""

import time

#: Processor time, and bytes to read. An environment of 200 extensions takes a quarter of them.
SECONDS = 20.0
MEGABYTES = 1024
#: How many steps are made between two looks at the clock; so many bytes are a step.
_STEPS_PER_LOOK = 64
_BYTES_PER_STEP = 1 << 12


class BudgetSpentError(RuntimeError):
    """The budget is spent: what was to be read is not known."""


class Budget:
    """The processor time that is left from now on, and the bytes that may still be read."""

    def __init__(self, seconds: float = SECONDS, megabytes: int = MEGABYTES) -> None:
        self.seconds = seconds
        self.megabytes = megabytes
        self._end = time.process_time() + seconds
        self._bytes_left = megabytes << 20
        self._steps_until_look = 0

    def allow_more(self, seconds: float) -> None:
        """Add processor time, as for an environment with more extensions than most."""
        self.seconds += seconds
        self._end += seconds

    def take(self, size: int) -> None:
        """Count bytes, without a look at the clock: whoever says of what nothing can be told needs
        metadata, too. Raises BudgetSpentError."""
        if size > self._bytes_left:
            raise BudgetSpentError(f"more than {self.megabytes} MB in all")
        self._bytes_left -= size

    def spend(self, size: int = 0) -> None:
        """Count a step, and the bytes that it is to read. Raises BudgetSpentError."""
        self.take(size)
        self._steps_until_look -= 1 + size // _BYTES_PER_STEP
        if self._steps_until_look < 0:
            self._steps_until_look = _STEPS_PER_LOOK
            self.check_time()

    def check_time(self) -> None:
        """Look at the clock. Raises BudgetSpentError."""
        if time.process_time() > self._end:
            raise BudgetSpentError(f"more than {self.seconds:g} s of processor time in all")
