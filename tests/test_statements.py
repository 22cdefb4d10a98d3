"""What two pages tell agrees, and with what is stored."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import median

from benchmarks import schema
from benchmarks.compare import OURS, PASSES, SLOWER, groups, ratios
from measurements.storage import RESULTS
from torchship.doctor.environment import pythons
from torchship.doctor.fixes import searching, trying
from torchship.doctor.grammar import Check
from torchship.doctor.wheels import choose, remote
from torchship.judge.records import Finding, Verdict

REPO = Path(__file__).resolve().parents[1]
DOCS = REPO / "docs"


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
    slower = sum(value < SLOWER for values in by_pass for value in values)
    assert slower == 1
    assert "one of them was slower" in readme
    assert "of which one was slower than `nn.LSTM`" in page("start/index.md")
    layer = page("use/layer.md")
    assert f"the median of [{draws} layers drawn at random]" in layer
    assert "is about three times as fast as `nn.LSTM`" in layer
    assert {round(median(values)) for values in by_pass} == {3}


def test_a_picture_says_the_ends_of_its_scale() -> None:
    """To who cannot see it: from the slowest to the fastest cell that it shows."""
    from docs._ext.grids import heat_maps

    drawn = {
        "grid-step-h200": ("picked/grid-cuda", 1),
        "grid-step-cpu": ("cpu/grid-cpu", 1),
        "grid-layer-256": ("picked/grid-layer-cuda", 256),
        "grid-layer-16": ("picked/grid-layer-cuda", 16),
    }
    content = page("numbers/index.md")
    for name, (file, steps) in drawn.items():
        maps = heat_maps(schema.read(RESULTS / f"{file}.json.xz"), steps)
        values = [value for heat_map in maps.values() for value in heat_map.values()]
        pattern = rf'{name}-light.svg" alt="[^"]*from ([\d.]+) to ([\d.]+) times'
        (told,) = re.findall(pattern, content)
        for text, value in zip(told, (min(values), max(values)), strict=True):
            digits = len(text.partition(".")[2])
            assert f"{value:.{digits}f}" == text, name


def test_the_page_on_measurements_tells_the_stored_suite_on_gpus() -> None:
    stored = json.loads((RESULTS / "gpu" / "gpu_suite.json").read_text(encoding="utf-8"))
    content = page("../measurements/README.md")
    summary = stored["parts"]["tests"]["summary"]
    passed, skipped = (re.search(rf"(\d+) {word}", summary) for word in ("passed", "skipped"))
    clients = stored["parts"]["clients"]["summary"]
    told = re.search(
        r"at (\w+) on H200, all parts on one card: (\d+) tests passed, (\d+) were skipped, none "
        r"failed; of the clients, which compile small extensions, (\d+) passed",
        content,
    )
    assert told is not None
    commit, *numbers = told.groups()
    assert stored["commit"].startswith(commit)
    assert numbers == [passed[1], skipped[1], clients.split()[0]]
    assert all(part["passed"] for part in stored["parts"].values())


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
        name: re.findall(sentence, page(name).replace(" # ", " "))
        for name in ("fails/faq.md", "numbers/support.md", "../build_matrix.yaml")
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
    index = (DOCS / "fails" / "index.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```text\n(torchvision .*?)^```", index, re.DOTALL | re.M)
    assert set(block.splitlines()) <= set(gallery[0].splitlines())


def test_the_api_page_tells_every_field_of_a_verdict_and_of_a_finding() -> None:
    told = set(re.findall(r"^\| `(\w+)` \|", (DOCS / "fails" / "api.md").read_text("utf-8"), re.M))
    assert {*Verdict.__annotations__, *Finding.__annotations__} - told == set()


def test_the_doctor_s_page_names_the_limits_that_hold() -> None:
    told = page("fails/doctor.md")
    words = {8: "eight", 10: "ten"}
    minutes = trying._SECONDS_TO_INSTALL // 60
    megabytes = f"{remote._MAX_OF_WHEEL / 1e6:g} MB"
    for sentence in (
        f"at most {words[searching._MOST_TRIES]} are tried, in at most {words[minutes]} minutes",
        f"the import did not end in {Check().seconds:g} s",
        f"at most {choose._MAX_OPENED} wheels are opened",
        f"at most {megabytes} of a wheel, and {remote._MAX_IN_ALL / 1e6:g} MB in all",
    ):
        assert sentence in told
    promised = page("../SECURITY.md")
    for sentence in (f"is stopped after {pythons._SECONDS:g} s", f"at most {megabytes} of a wheel"):
        assert sentence in promised


def test_pages_agree_on_how_many_variants_there_are() -> None:
    """The cells of the matrix that a whole wheel has; a new repository's has its own matrix."""
    from torchship.release.matrix.cells import required
    from torchship.release.matrix.load import load

    ours = len(required(load(REPO / "build_matrix.yaml")))
    assert f"`+partial.1of{ours}` in the wheel's name means that it has one of {ours}" in page(
        "start/index.md"
    )
    assert f"+partial.3of{ours}" in page("ship/release.md")
    assert f"today's names do not, and {ours} is all." in page("numbers/support.md")
    matrix = load(REPO / "torchship" / "templates" / "rms_norm" / "build_matrix.yaml")
    theirs = len(required(matrix))
    own_op = page("ship/own-op.md")
    assert {*re.findall(r"of(\d+)`", own_op)} == {str(theirs)}
    assert f"all {theirs} took an hour" in own_op
    assert f"The wheel of a release has all {theirs}, and section 4 builds it" in own_op
    of_stable = [cell for cell in required(matrix) if cell.startswith("stable")]
    assert of_stable == [f"stable210-{device}" for device in ("cpu", "cu12", "cu13")]
    assert "three for torch 2.10 and everything later (CPU, CUDA 12, CUDA 13)" in own_op
    older = [cell.removeprefix("aten2").split("-") for cell in required(matrix) if "aten" in cell]
    assert [device for _, _, device in older] == ["cpu", "cu12"] * (len(older) // 2)
    assert "two for each older torch of the matrix (CPU, CUDA 12)" in own_op
    assert f"all {theirs} variants of this platform" in own_op


def test_pages_agree_on_what_is_needed() -> None:
    """The disk of a whole run, and the oldest setuptools."""
    disks = {
        name: set(re.findall(r"(?:about|takes|needs) (\d+) GB", page(name)))
        for name in ("../README.md", "ship/own-op.md", "ship/costs.md", "ship/steps.md")
    }
    assert disks == {name: {"20"} for name in disks}
    (oldest,) = re.findall(r'"setuptools>=(\d+)"', (REPO / "pyproject.toml").read_text("utf-8"))
    assert f'"setuptools>={oldest}"' in page("../README.md")
    for name in ("start/index.md", "start/building/setuptools.md"):
        assert f"setuptools {oldest} or newer" in page(name), name


def test_readme_tells_the_doctor_s_record_on_what_it_had_not_seen() -> None:
    """The sum of the rows that were measured before the doctor was changed for them.

    Those measured after it leave the cell of what works empty.
    """
    content = (DOCS / "numbers" / "environments.md").read_text(encoding="utf-8")
    section = content.partition("## Situations that the doctor had not seen")[2]
    table, _, _ = section.partition("\n\nSo ")
    blind = [
        [int(cell.partition(" of ")[0]) for cell in row.split(" | ")[:7]]
        for row in re.findall(r"^\| [^|]+ \| (\d+ \| \d+ \| .*) \|$", table, re.MULTILINE)
    ]
    assert len(blind) >= 5
    number, work, called_working, refused, right, wrong, unknown = map(
        sum, zip(*blind, strict=True)
    )
    assert number - work == right + wrong + unknown
    assert refused == 0
    assert (
        f"In [{number} situations](docs/numbers/environments.md) that it had not seen, it called "
        f"none of the {work} that work broken, and {called_working} of the {number - work} broken "
        f"ones working. It named the right cause for {right}, a wrong one for {wrong}, and none "
        f"for {unknown}."
    ) in page("../README.md")


def test_the_home_page_and_readme_begin_alike() -> None:
    """One sentence for the whole, and a table of who gets what; the links are their own."""

    def beginning(name: str) -> tuple[list[str], list[str]]:
        text = re.sub(r"\]\((?:docs/)?", "](", (DOCS / name).read_text(encoding="utf-8"))
        sentences = re.findall(r"Three tools for .*?made for\.", " ".join(text.split()))
        return sentences, re.findall(
            r"^\| (?:you \| get \||stand|have|train) .*$", text, re.MULTILINE
        )

    readme, home = beginning("../README.md"), beginning("index.md")
    assert readme == home
    assert [len(part) for part in readme] == [1, 4]
