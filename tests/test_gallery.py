"""The pages of the gallery run, and print what they show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]
PAGES = sorted(page for page in (REPO / "docs" / "gallery").glob("*.md") if page.stem != "index")
MARKS = {
    # They train, or start Python many times, for some ten seconds of processor time each.
    "digits": (pytest.mark.slow,),
    "broken-import": (pytest.mark.slow,),
    # It compiles an extension of torch's, for most of a minute.
    "tutorial": (pytest.mark.rehearsal,),
    # It downloads torch and torchvision into an environment of its own.
    "torchvision": (pytest.mark.slow, pytest.mark.network),
}
# The installed package, not the checkout's; `benchmarks` is the checkout's.
RUN = """
import runpy, sys
from pathlib import Path
sys.path[:] = [entry for entry in sys.path if entry not in ("", {repo!r})] + [{repo!r}]
print(runpy.run_path({script!r})["run"](Path({page!r})))
"""
# What was measured, and sizes of files: another machine has other figures.
MEASURED = re.compile(r" *(?:\d[\d.]*( µs| %|x\b)|\b\d{5,}\b)")


def masked(output: str) -> str:
    return MEASURED.sub(r" #\1", output).strip()


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=MARKS.get(page.stem, ())) for page in PAGES],
    ids=lambda page: page.stem,
)
def test_a_page_prints_what_it_shows(page: Path) -> None:
    if page.stem == "digits":
        pytest.importorskip("sklearn")
    script = str(REPO / "docs" / "_ext" / "gallery.py")
    code = RUN.format(repo=str(REPO), script=script, page=str(page))
    # readline, which pytest imports, sets COLUMNS for new processes, of which xdist's are some.
    env = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=REPO, env=env, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert masked(run.stdout) == masked(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_page_stores_an_output(page: Path) -> None:
    assert "\n```text\n" in page.read_text(encoding="utf-8")


def test_only_figures_are_masked() -> None:
    assert masked("lltm   97 µs  2.10x, 96.9 %, byte 163248") == "lltm # µs #x, # %, byte #"
    assert masked("exit code 1, 1 launch") == "exit code 1, 1 launch"
