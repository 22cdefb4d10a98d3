"""Runs the pages of the gallery: what each block prints is stored below it.

    python -m docs._ext.gallery

Needs the installed package, and runs in the root of a checkout. torchvision.md downloads torch.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from pathlib import Path

from measurements.installed import import_installed

REPO = Path(__file__).resolve().parents[2]
PAGES = sorted(page for page in (REPO / "docs" / "gallery").glob("*.md") if page.stem != "index")
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n.*?^```\n)?", re.MULTILINE | re.DOTALL)


def run(page: Path) -> str:
    """The page's text, with what its blocks print now."""
    names: dict[str, object] = {"__name__": "gallery"}

    def run_block(block: re.Match[str]) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(block[1], page.name, "exec"), names)
        output = "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())
        shown_output = f"\n```text\n{output}```\n" if output else ""
        return f"```python\n{block[1]}```\n{shown_output}"

    return BLOCK.sub(run_block, page.read_text(encoding="utf-8"))


if __name__ == "__main__":
    # The installed package first, then `benchmarks` of the checkout.
    import_installed("lltm_conda")  # which the pages import
    for path in map(Path, sys.argv[1:] or PAGES):
        path.write_text(run(path), encoding="utf-8")
        print(f"ran {path.name}", file=sys.stderr)
