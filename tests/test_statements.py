"""What two pages tell agrees, and with what is stored."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import median

from benchmarks import schema
from benchmarks.compare import OURS, PASSES, SLOWER, groups, ratios
from measurements.storage import RESULTS
from torchship.judge.records import Finding, Verdict

DOCS = Path(__file__).resolve().parents[1] / "docs"


def page(name: str) -> str:
    """The page in one line."""
    return " ".join((DOCS / name).read_text(encoding="utf-8").split())


def test_the_speed_that_pages_name_is_the_stored_one() -> None:
    """The median over layers of random sizes, wherever it stands, and the number of draws."""
    drawn = ratios(schema.read(RESULTS / "h200" / "random-layer-cuda.json.xz"))
    by_pass = [[ratio.value for ratio in drawn if ratio.metric == name] for name in PASSES]
    draws = len(by_pass[0])
    cells = [
        f"{median(values):.2f}x, {min(values):.2f}x, {sum(value < SLOWER for value in values)}"
        for values in by_pass
    ]
    assert f"| {draws} | {' | '.join(cells)} |" in page("numbers/index.md")
    forward, backward = (f"{median(values):.1f} times" for values in by_pass)
    assert (
        f"{forward} as fast as `nn.LSTM` forward and {backward} backward. These are the medians "
        f"of {draws} layers"
    ) in page("start/index.md")
    readme = page("../README.md")
    assert f"the median of [{draws} layers drawn at random]" in readme
    assert f"{forward} as fast forward and {backward}" in readme


def compared(file: str, size: schema.Size, dtype: str, contenders: list[str]) -> list[str]:
    """A row of the page on alternatives: times forward and backward, and how many times ours."""
    by_pass = [
        groups(schema.read(RESULTS / "h200" / f"alternatives-{file}.json.xz"))[size, dtype, name]
        for name in PASSES
    ]
    cells = []
    for contender in contenders:
        parts = []
        for results in by_pass:
            time = results[contender].median
            ratio = time / results[OURS].median
            times = f"{ratio:.2g}x" if ratio >= 10 else f"{ratio:.1f}x"
            parts.append(f"{time:.3g}" + ("" if contender == OURS else f" ({times})"))
        cells.append(" / ".join(parts))
    return cells


def test_the_alternatives_are_the_stored_ones() -> None:
    content = (DOCS / "numbers" / "speed" / "alternatives.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| B (\d+), S ([\d,]+), T ([\d,]+) \| (.*) \|$", content, re.MULTILINE)
    assert len(rows) == 5 + 16
    for batch, state, steps, rest in rows:
        sizes = (int(number.replace(",", "")) for number in (batch, state, state, steps))
        first, *others = rest.split(" | ")
        if " / " in first:  # FlashRNN's table, of one dtype
            cells = [first, *others]
            named = ("flashrnn", "bfloat16", [OURS, "flashrnn-fused", "flashrnn", "lstm", "gru"])
        else:
            cells = others
            of_float32 = {"float32": "gru-float32", "TF32": "gru-tf32"}
            dtype = "float32" if first in of_float32 else first
            named = (of_float32.get(first, "gru-16"), dtype, [OURS, "lstm", "gru"])
        file, dtype, contenders = named
        assert compared(file, schema.Size(*sizes), dtype, contenders) == cells


def test_a_step_has_one_time_on_each_clock() -> None:
    """The GPU's own time, and the wall time beside it."""
    own, wall = (
        groups(schema.read(RESULTS / "picked" / f"cell-cuda-{protocol}.json.xz"))[
            schema.Size(16, 32, 128), "float32", "forward"
        ][OURS].median
        for protocol in ("kernels", "tutorial")
    )
    tutorial = page("gallery/tutorial.md")
    assert f"works on our forward step for only [{own:.1f} µs]" in tutorial
    assert f"ours forward {wall:.0f} us" in tutorial


def test_pages_agree_on_the_cuda_of_conda_forge_s_pytorch() -> None:
    """The versions of the recipe's page, in one sentence wherever they stand."""
    recipe = page("ship/conda-forge.md")
    (versions,) = re.findall(r"`None`, (\d+\.\d+), and, by its migration, (\d+\.\d+)", recipe)
    sentence = r"conda-forge builds pytorch for CUDA (\d+\.\d+) and (\d+\.\d+)"
    told = {
        name: re.findall(sentence, page(name)) for name in ("fails/faq.md", "numbers/support.md")
    }
    assert told == {name: [versions] for name in told}


def test_the_page_on_the_doctor_shows_the_session_of_the_gallery() -> None:
    """Which is run; from the block of the package to the summary."""
    report = re.compile(r"^torchvision \S+ does not work.*?cannot be told: \d+$", re.DOTALL | re.M)
    gallery, doctor = (
        report.findall((DOCS / name).read_text(encoding="utf-8"))
        for name in ("gallery/torchvision.md", "fails/doctor.md")
    )
    assert len(gallery) == 1
    assert doctor == gallery


def test_the_api_page_tells_every_field_of_a_verdict_and_of_a_finding() -> None:
    told = set(re.findall(r"^\| `(\w+)` \|", (DOCS / "fails" / "api.md").read_text("utf-8"), re.M))
    assert {*Verdict.__annotations__, *Finding.__annotations__} - told == set()
