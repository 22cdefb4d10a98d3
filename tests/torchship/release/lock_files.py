"""What is wrong with a file of locked requirements."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

LOCKED = re.compile(r"[\w.-]+==\S+ .*--hash=sha256:[0-9a-f]{64}")


def lock_problems(lock: Path) -> Iterator[str]:
    """Lines without a hash, and requirements of the `.in` beside the lock that it does not pin."""
    content = lock.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in content.splitlines() if line[:1] not in ("#", "")]
    if len(lines) <= 5:
        yield f"it has {len(lines)} lines"
    for line in lines:
        if not LOCKED.match(line):
            yield f"no hash: {line[:80]}"
    for line in lock.with_suffix(".in").read_text(encoding="utf-8").splitlines():
        name = re.split(r"[ <>=;]", line)[0]
        if line[:1] not in ("#", "") and not re.search(rf"^{name}==", content, re.MULTILINE):
            yield f"not locked: {line}"
