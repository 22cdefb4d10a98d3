"""The troubleshooting page, generated from the table of faults."""

from __future__ import annotations

from ..project import Project
from .faults import FAULTS, Fault

_HEAD = """\
<!-- Generated from {0.package}/engine/compat/faults.py; do not edit. To make it again:
     scripts/build_all.sh --write-generated -->

# Troubleshooting

First, whatever the error says:

```
{0.command}
```

It works where `import {0.package}` fails. It prints this machine, every binary of the package with
its verdict, the one cause, and the command that mends it for this environment (pip or conda). Paste
its output into a bug report: it shortens your home folder and your environment's.

| you want | you type |
|---|---|
| the same for a program | `{0.command} --json` |
| why one variant is (not) taken | `{0.command} --explain stable210-cpu` |
| to judge any torch extension of any package | `{0.command} --binary FILE` |
| to judge against another torch or environment | `{0.command} --torch PATH` |
| a binary compiled for this very torch | `{0.command} build` |
| a certain variant | `{0.prefix}_VARIANT=aten29-abi1-cpu` in the environment (still judged) |
| to load without being judged | `{0.prefix}_SKIP_CHECK=1` (a wrong guess can crash Python) |

These are the fifteen ways in which a torch extension fails for its users, how each looks without a
checker, and what to do.
"""

_FOOT = """\
## How each class is proven

"Injected" means that a test makes it happen for real on any machine; "GPU machine" that it is shown
by a test marked `cuda`; "simulated" that the fact (a driver that cannot be had) is given to the
probe, and all after it is real.

| class | proof |
|---|---|
"""


def page(project: Project) -> str:
    """The page as Markdown."""
    parts = [_HEAD, *(_section(fault) for fault in FAULTS), _FOOT.rstrip("\n")]
    rows = "\n".join(f"| {fault.number}. {fault.title} | {fault.proof} |" for fault in FAULTS)
    return "\n".join(parts).format(project) + "\n" + rows + "\n"


def _section(fault: Fault) -> str:
    return (
        f"## {fault.number}. {fault.title}\n\n"
        f"**How it looks.** {fault.looks}\n\n"
        f"**Why it happens.** {fault.why}\n\n"
        f"**How it is mended.** {fault.mend}\n"
    )
