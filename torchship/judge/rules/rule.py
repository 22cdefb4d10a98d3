"""What a rule is: one question about an object, beside a torch, on a machine.

In come a `BinaryRecord` and a `Runtime`, in which the facts lie that were gathered; out goes a
`Finding`, or nothing where the question does not apply. A rule decides by these facts alone; only
the words of a fix may come from a file of the machine (see `fixes`).

Where facts are not known, a rule has one of three ways. If they are often not looked up, and the
object may be accepted without them, it names them in `needs`: the verdict says *not looked at*. If
the object may then crash or compute something false, the check returns an `UNKNOWN` finding, which
refuses it. It returns nothing only where another rule about the same facts says one of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..project import Record
from ..reading.elf import Header
from ..records import NOT_LOOKED_AT, OK, BinaryRecord, Finding, Runtime
from ..words.codes import Code, Message

if TYPE_CHECKING:
    from ..linking.process import Opening

Check = Callable[[BinaryRecord, Runtime], "Finding | None"]


class Need(Record):
    """Facts that are not always looked up."""

    facts: str  #: what they are, for people
    is_known: Callable[[BinaryRecord, Runtime], bool]


#: What the dynamic linker finds, and what it minds.
NEEDS_LINKS = Need(
    "what the dynamic linker would find",
    lambda binary, runtime: str(binary.path) in runtime.openings,
)
NEEDS_SYMBOLS_OF_LIBRARIES = Need(
    "what defines the symbols of its libraries",
    lambda binary, runtime: (
        (opening := runtime.openings.get(str(binary.path))) is not None and opening.is_bound
    ),
)
NEEDS_SYMBOLS = Need(
    "the symbols that nothing defines",
    lambda binary, runtime: str(binary.path) in runtime.missing_symbols,
)
NEEDS_DRIVER = Need("the driver", lambda _, runtime: runtime.gpu_probed)
NEEDS_GPU = Need("the GPUs", lambda _, runtime: runtime.gpu_probed or bool(runtime.devices))


def opening_of(binary: BinaryRecord, runtime: Runtime) -> Opening:
    """What the dynamic linker would do with the object, for rules that need `NEEDS_LINKS`."""
    return runtime.openings[str(binary.path)]


def files_of(binary: BinaryRecord, runtime: Runtime) -> Mapping[Path, Header]:
    """The headers of all files that an import would load; if they were not looked up, that of the
    object alone. It may be loaded already, as by LD_PRELOAD."""
    opening = runtime.openings.get(str(binary.path))
    return {binary.path: binary.header} if opening is None else opening.new


def has_gpu_code(binary: BinaryRecord) -> bool:
    return bool(binary.cuda_archs)


class Rule(Record, kw_only=True):
    """A question, with all that is said of it anywhere.

    The heading, the class of faults and what a finding means in a cache belong to its codes.
    """

    #: Its place among the rules. The first rejection is the cause that a user reads, so the ranks
    #: also order the causes: from 100 on the file, 200 the machine and its Python, 300 torch, 400
    #: the system's libraries, 500 CUDA, 600 what the dynamic linker looks up, 900 mere evidence.
    rank: int
    dimension: str  #: what is compared, for people alone: no program looks at it
    codes: tuple[Code, ...]  #: the kinds of its findings
    check: Check
    messages: tuple[Message, ...] = ()  #: what the dynamic linker says, if messages.py has it not
    #: What must have been looked up. If it was not, the verdict says so; the check is not asked.
    needs: tuple[Need, ...] = ()
    #: Whether it is asked all the same, since the object's own headers may tell (`files_of`).
    asks_object: bool = False
    #: Which objects can have such a finding; None for all.
    concerns: Callable[[BinaryRecord], bool] | None = None
    ends: bool = False  #: whether nothing else is asked of an object that it does not accept

    def ask(self, binary: BinaryRecord, runtime: Runtime) -> Finding | None:
        """The finding, complete; None if the question does not apply or cannot be asked."""
        finding = self.check(binary, runtime)
        if finding is None:
            return None
        if finding.status == OK:  # most are, and an import makes some twenty of them
            return finding if finding.dimension else finding._replace(dimension=self.dimension)
        fault = finding.code.fault if isinstance(finding.code, Code) else None
        return finding._replace(
            dimension=finding.dimension or self.dimension, fault=finding.fault or fault
        )

    def missing(self, binary: BinaryRecord, runtime: Runtime) -> Need | None:
        """The facts that were not looked up; None if the rule can be asked."""
        unknown = (need for need in self.needs if not need.is_known(binary, runtime))
        return next(unknown, None)


def not_looked_at(need: Need, rules: list[Rule]) -> Finding:
    """What the verdict says of rules whose facts were not looked up."""
    names = ", ".join(dict.fromkeys(rule.dimension for rule in rules))
    return Finding(
        dimension="not looked at",
        status=NOT_LOOKED_AT,
        observed=f"{need.facts}: not looked at",
        needed=names,
    )
