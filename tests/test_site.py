"""The built site as people meet it: in a browser, wide and narrow, light and dark."""

from __future__ import annotations

import functools
import http.server
import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from site_messages import THREADS, WORDS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from torchship.release.run.manifest import Manifest

REPO = Path(__file__).resolve().parents[1]
SITE = REPO / "build" / "site"
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
PAGES = ("index", "start/index", "fails/troubleshooting", "use/api", "numbers/index")
SCREENS = {"wide": 1280, "narrow": 390}
SCHEMES = ("light", "dark")

pytestmark = [
    pytest.mark.skipif(not SITE.is_dir(), reason="no build/site: run scripts/docs.sh"),
    pytest.mark.skipif(not CHROMIUM, reason="no Chromium: run scripts/docs.sh --browser"),
]


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    handler = functools.partial(Quiet, directory=str(SITE))
    with http.server.ThreadingHTTPServer(("localhost", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    playwright = pytest.importorskip("playwright.sync_api")
    arguments = ["--disable-gpu", "--disable-quic", "--disable-background-networking"]
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")
    with playwright.sync_playwright() as started:
        yield started.chromium.launch(executable_path=CHROMIUM, args=arguments)


OpenPage = Callable[[str, str], "Page"]


@pytest.fixture(scope="module")
def open_page(browser: Browser) -> OpenPage:
    """Gives the page of a screen and a scheme. There is one of each: a new one is a process that
    compiles the site's scripts again, for over a second."""

    @cache
    def opened(screen: str, scheme: str) -> Page:
        viewport = {"width": SCREENS[screen], "height": 900}
        page = browser.new_context(viewport=viewport, color_scheme=scheme).new_page()
        page.console_errors = errors = []
        page.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("requestfailed", lambda r: errors.append(f"failed: {r.url}"))
        return page

    return opened


@pytest.fixture
def page(open_page: OpenPage, request: pytest.FixtureRequest) -> Page:
    """A page, as wide and in the scheme that the test asks for, that keeps console errors."""
    screen, scheme = getattr(request, "param", ("wide", "light"))
    page = open_page(screen, scheme)
    page.set_viewport_size({"width": SCREENS[screen], "height": 900})
    page.goto("about:blank")
    page.console_errors.clear()
    return page


#: Each screen and each scheme once: no rule of the styles names both.
WAYS = [
    pytest.param(("wide", "light"), id="wide-light"),
    pytest.param(("narrow", "dark"), id="narrow-dark", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("page", WAYS, indirect=True)
def test_pages_open_without_errors_and_fit_the_screen(page: Page, address: str) -> None:
    for name in PAGES:
        page.goto(f"{address}/{name}.html")
        assert page.locator("h1").count() >= 1, name
        width = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
        assert width[0] <= width[1], f"{name} scrolls sideways"
        assert page.console_errors == [], name


@pytest.mark.parametrize("page", WAYS, indirect=True)
@pytest.mark.parametrize(
    "names",
    [PAGES[:1], pytest.param(PAGES[1:], marks=pytest.mark.slow)],  # a long page takes seconds
    ids=["first", "others"],
)
def test_axe_finds_nothing_serious(page: Page, address: str, names: Sequence[str]) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    serious = {}
    for name in names:
        page.goto(f"{address}/{name}.html")
        for violation in axe.Axe().run(page).response["violations"]:
            if violation["impact"] in ("serious", "critical"):
                places = [node["html"][:120] for node in violation["nodes"][:3]]
                serious[name, violation["id"]] = places
    assert serious == {}


def test_the_header_takes_one_line(page: Page, address: str) -> None:
    page.goto(f"{address}/index.html")
    logo, search = ".bd-header .navbar-brand", ".bd-header .search-button-field"
    for width in (960, 1024, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        middles = [
            box["y"] + box["height"] / 2
            for part in (logo, search)
            if (box := page.locator(f"{part}:visible").first.bounding_box()) is not None
        ]
        assert len(middles) == 2, width
        assert abs(middles[0] - middles[1]) < 5, width


@pytest.mark.parametrize("page", [("wide", scheme) for scheme in SCHEMES], indirect=True)
def test_the_site_takes_the_scheme_of_the_system(page: Page, address: str) -> None:
    page.goto(f"{address}/index.html")
    dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    assert page.evaluate("document.documentElement.dataset.theme") == ("dark" if dark else "light")
    visible = [i for i in page.locator("article img").all() if i.is_visible()]
    schemes = [str(image.get_attribute("src")).rpartition("-")[2] for image in visible]
    assert schemes == 2 * ["dark.svg" if dark else "light.svg"]  # a terminal and the matrix


def whole_release() -> Manifest:
    """The manifest of a run that made every cell of the matrix, with names as long as real ones."""
    from torchship.release.matrix.cells import all_cells
    from torchship.release.matrix.load import load
    from torchship.release.run.manifest import Artefact, CellEntry, HostFacts, Manifest, Run

    cells = all_cells(load(REPO / "build_matrix.yaml"))
    wheels = {
        cell.name: f"simple/lltm/lltm-0.1.0+{cell.local_version}-py3-none-manylinux_2_34_x86_64.whl"
        for cell in cells
    }
    facts = {"torch": "2.13.0+cpu", "python": "3.11.7", "devices": ["cpu"], "comparisons": 4}
    runs = [
        Run(kind="venv", ran=True, facts=facts),
        Run(kind="gpu", ran=False, why_not="its CUDA kernels were compiled and checked, not run"),
    ]
    return Manifest(
        package="lltm",
        version="0.1.0",
        commit="c" * 40,
        clean=True,
        sources="5" * 64,
        source_date="2026-01-01T00:00:00Z",
        base_channel=None,
        made="2026-01-01T00:00:00Z",
        seconds=3867.0,
        total=len(cells),
        missing={},
        cells={
            cell.name: CellEntry(
                state="done",
                torch=cell.torch.release,
                binaries=cell.files,
                wheel=wheels[cell.name],
                runs=runs,
                steps={f"wheel/{cell.name}": 6.4, f"venv/{cell.name}": 51.5},
                host="h",
            )
            for cell in cells
        },
        binaries={},
        artefacts=[
            Artefact(
                path=path,
                kind="thin",
                sha256="0" * 64,
                size=213_743,
                goes_to=["folder"],
                cells=[name],
            )
            for name, path in wheels.items()
        ],
        hosts={
            "h": HostFacts(
                system="Linux 6.18.44 x86_64, glibc 2.36",
                python="3.11",
                compiler="g++ 12.2.0",
                processors=2,
                gpus=[],
                tools={"auditwheel": "6.4.2", "rattler-build": "0.47.0"},
            )
        },
    )


@pytest.mark.parametrize("page", [("narrow", "light")], indirect=True)
def test_the_report_of_a_release_fits_a_phone(page: Page, tmp_path: Path) -> None:
    """That of a whole matrix: no column is as narrow as a letter, and only tables scroll."""
    pytest.importorskip("pydantic")
    from torchship.release.run.manifest import render

    report = tmp_path / "report.html"
    report.write_text(render(whole_release(), tmp_path), encoding="utf-8")
    page.goto(report.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach((part) => (part.open = true))")
    widths = page.evaluate(
        "[...document.querySelectorAll('th, td')]"
        ".filter((cell) => cell.textContent.trim()).map((cell) => cell.clientWidth)"
    )
    assert min(widths) >= 100
    assert page.evaluate("document.documentElement.scrollWidth") <= SCREENS["narrow"]


def first_result(page: Page, address: str, question: str) -> str:
    """The page of the first result, as the site's search shows them."""
    page.goto(f"{address}/search.html?q={quote(question)}")
    page.wait_for_selector("ul.search li a", timeout=20_000)
    link = page.locator("ul.search li a").first.get_attribute("href") or ""
    return link.partition("#")[0].partition("?")[0].removeprefix("./")


# Of the quick tests, an error that is pasted on the first page is searched for.
@pytest.mark.slow
def test_search_finds_the_page_of_a_real_message_first(page: Page, address: str) -> None:
    found = {case.thread: first_result(page, address, case.message) for case in THREADS}
    assert found == {case.thread: case.page for case in THREADS}
    assert page.console_errors == []


@pytest.mark.slow
def test_search_finds_the_page_of_a_word_first(page: Page, address: str) -> None:
    found = {words: first_result(page, address, words) for words in WORDS}
    assert {w: place for w, place in found.items() if not place.startswith(WORDS[w])} == {}


def test_the_words_of_the_changelog_are_not_searched() -> None:
    script = (SITE / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(script.removeprefix("Search.setIndex(").removesuffix(")"))
    found: set[str] = set()
    for places in index["terms"].values():
        numbers = places if isinstance(places, list) else [places]
        found.update(index["docnames"][number] for number in numbers)
    assert "fails/messages" in found
    assert "contribute/changelog" not in found


# The longest line of each block of code that is wider than its frame.
CLIPPED = """() => [...document.querySelectorAll("article pre")]
  .filter((block) => block.offsetParent !== null && block.scrollWidth > block.clientWidth)
  .map((block) => {
    const lines = block.textContent.split("\\n");
    return lines.reduce((one, other) => (other.length > one.length ? other : one));
  })"""


def longest_line_of_code(page: Path) -> int:
    blocks = re.findall(r"<pre>(.*?)</pre>", page.read_text(encoding="utf-8"), re.DOTALL)
    lines = [line for block in blocks for line in re.sub("<[^>]*>", "", block).splitlines()]
    return max(map(len, lines), default=0)


@pytest.mark.slow
def test_no_page_scrolls_sideways_and_no_block_of_code_is_clipped(page: Page, address: str) -> None:
    """Blocks of code are looked at beside the sidebars alone; on a phone the long ones scroll.

    The pages of codes have one shape: of these the one with the longest line of code is opened.
    """
    codes = [path for path in SITE.glob("fails/codes/*.html") if path.stem != "index"]
    pages = {*SITE.rglob("*.html")} - {*codes, *SITE.rglob("_*/**/*.html")}
    wide, clipped = [], {}
    for path in sorted([*pages, max(codes, key=longest_line_of_code)]):
        name = path.relative_to(SITE).as_posix()
        page.set_viewport_size({"width": SCREENS["wide"], "height": 900})
        page.goto(f"{address}/{name}")
        if name not in ("search.html", "genindex.html") and (lines := page.evaluate(CLIPPED)):
            clipped[name] = lines
        for width in SCREENS.values():
            page.set_viewport_size({"width": width, "height": 900})
            widths = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
            if widths[0] > widths[1]:
                wide.append((name, *widths))
    assert (wide, clipped) == ([], {})


def test_search_opens_by_the_keyboard(page: Page, address: str) -> None:
    page.goto(f"{address}/index.html")
    page.keyboard.press("Control+k")
    page.keyboard.type("libcudart")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?q=libcudart*")


@pytest.mark.parametrize("page", [("wide", "light"), ("narrow", "dark")], indirect=True)
@pytest.mark.slow
def test_the_selector_shows_the_commands_of_the_data(page: Page, address: str) -> None:
    data = json.loads((REPO / "docs" / "install.json").read_text())
    page.goto(f"{address}/start/index.html")
    for key, answer in data["answers"].items():
        for question, value in zip(data["questions"], key.split(), strict=True):
            page.check(f"input[name={question}][value={value}]")
        visible = [code for code in page.locator(".install-answer pre").all() if code.is_visible()]
        assert [code.inner_text() for code in visible] == [answer["command"]], key


def test_the_selector_works_by_the_keyboard(page: Page, address: str) -> None:
    page.goto(f"{address}/start/index.html")
    page.focus("input[name=with][value=pip]")
    page.keyboard.press("ArrowRight")
    assert page.is_checked("input[name=with][value=conda]")
    command = page.locator(".install-answer:visible pre").inner_text()
    assert command.startswith("conda install")


def test_a_page_has_a_logo(page: Page, address: str) -> None:
    page.goto(f"{address}/start/index.html")
    logo = page.locator(".navbar-brand img:visible").first
    assert logo.evaluate("image => image.naturalWidth") > 0


def test_no_page_leads_to_a_repository_without_an_address() -> None:
    """Until the project has one, `project.url` is a placeholder of example.org."""
    dead = [
        page.relative_to(SITE).as_posix()
        for page in SITE.rglob("*.html")
        if 'href="https://example.org' in page.read_text(encoding="utf-8")
    ]
    assert dead == []


def test_an_error_that_is_pasted_on_the_first_page_leads_to_its_cause(
    page: Page, address: str
) -> None:
    case = THREADS[0]
    page.goto(f"{address}/index.html")
    page.fill("form.ask textarea", f"Traceback (most recent call last):\n{case.message}")
    page.click("form.ask button")
    page.wait_for_selector("ul.known-messages li a")
    link = page.locator("ul.known-messages li a").first.get_attribute("href") or ""
    assert link.endswith(case.page)
    page.wait_for_selector("#search-results .search-summary", state="attached", timeout=20_000)
    assert not page.get_by_text("did not match any documents").is_visible()


def test_a_block_of_code_can_be_copied(page: Page, address: str) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"{address}/start/index.html")
    block = page.locator("article div.highlight:visible").first
    block.hover()
    block.locator("button.copybtn").click()
    code = block.locator("pre").inner_text().strip()
    assert page.evaluate("navigator.clipboard.readText()").strip() == code


def test_names_of_others_lead_to_their_documentation(page: Page, address: str) -> None:
    page.goto(f"{address}/use/api.html")
    for documentation in ("https://docs.pytorch.org/", "https://docs.python.org/"):
        assert page.locator(f"article a[href^='{documentation}']").count() > 0, documentation


def test_each_page_of_the_gallery_has_a_picture_that_leads_to_it(page: Page, address: str) -> None:
    page.goto(f"{address}/gallery/index.html")
    rows = page.locator("article tbody tr").all()
    pages = {path.stem for path in (REPO / "docs" / "gallery").glob("*.md")} - {"index"}
    assert {str(row.locator("a:has(img)").get_attribute("href")) for row in rows} == {
        f"{name}.html" for name in pages
    }
    for row in rows:
        assert row.locator("img:visible").first.evaluate("image => image.naturalWidth") > 0


@pytest.mark.parametrize("page", [("narrow", "light")], indirect=True)
@pytest.mark.slow
def test_the_text_of_a_picture_is_readable_on_a_phone(page: Page, address: str) -> None:
    """At least nine pixels high: the picture scrolls instead of shrinking."""
    smallest = {}
    for name in ("how/verdict", "how/architecture", "numbers/index", "how/kernels", "index"):
        page.goto(f"{address}/{name}.html")
        for image in page.locator("article p > img:visible").all():
            source = str(image.get_attribute("src"))
            if source.endswith(".svg"):
                svg = (SITE / "_images" / Path(source).name).read_text(encoding="utf-8")
                width = float(re.findall(r'viewBox="0 0 ([\d.]+) ', svg)[0])
                # A size stands in the style of an element, or in that of its class.
                sizes = re.findall(r"(?:<(?:svg|text) [^>]*?|font-size: ?)([\d.]+)px", svg)
                height = min(map(float, sizes))
                box = image.bounding_box()
                assert box is not None
                smallest[source] = height * box["width"] / width
    assert len(smallest) >= 3
    assert {source for source, height in smallest.items() if height < 9} == set()
