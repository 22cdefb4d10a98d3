"""The workflows of a project, with the jobs that its matrix needs.

The templates hold every job. What only some matrices need stands between `# begin: PART` and
`# end: PART`; a part whose name begins with `no-` is for the others.
"""

import re
from dataclasses import dataclass, fields

_PART = re.compile(r"(?ms)^ *# begin: ([\w-]+)\n(.*?)^ *# end: \1\n")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Which parts a matrix needs."""

    arm: bool = True  #: cells for linux-aarch64
    optional: bool = True  #: cells that PyPI's torch cannot build
    stable: bool = True  #: cells of the stable ABI, for the selector `stable*`
    arm_stable: bool = True
    cpu: bool = True  #: cells without CUDA, which a runner without a GPU can test


def shape_workflow(template: str, shape: Shape) -> str:
    """The text of a workflow for a matrix of this shape."""
    holds = {field.name.replace("_", "-"): getattr(shape, field.name) for field in fields(shape)}

    def part(match: re.Match[str]) -> str:
        name = match[1].removeprefix("no-")
        is_kept = holds[name] != match[1].startswith("no-")
        return _PART.sub(part, match[2]) if is_kept else ""

    text = _PART.sub(part, template)
    jobs = ["build"]
    jobs += [job for job in ("optional", "arm") if holds[job]]
    return text.replace("needs: [build, optional, arm]", f"needs: [{', '.join(jobs)}]")
