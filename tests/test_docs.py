"""The documentation is true where a machine can tell."""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import metadata
from pathlib import Path
from statistics import median

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token
from site_messages import THREADS

REPO = Path(__file__).resolve().parents[1]
PAGES = sorted([*REPO.glob("*.md"), *(REPO / "docs").rglob("*.md")])
PICTURES = REPO / "docs" / "pictures"
README = (REPO / "README.md").read_text()
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def name_of(path: Path) -> str:
    return str(path.relative_to(REPO))


def broken_links(page: Path) -> list[str]:
    return [
        link
        for link in LINK.findall(page.read_text())
        if not link.startswith(("http", "#", "mailto:"))
        and not (page.parent / link.partition("#")[0]).exists()
    ]


def by_page(rule: Callable[[Path], list[str]], pages: Iterable[Path]) -> dict[str, list[str]]:
    """What a rule finds, by the page in which it does."""
    return {name_of(page): found for page in pages if (found := rule(page))}


def test_links_lead_somewhere() -> None:
    assert by_page(broken_links, PAGES) == {}


# As the repository's web page shows them: CommonMark with GitHub's tables.
MARKDOWN = MarkdownIt("commonmark").enable("table")
HEADING = re.compile(r"^#{1,6} (.*?)\s*#*$", re.MULTILINE)
FENCED = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
# What only a generator understands: roles, attributes, targets, fences of colons.
FOR_A_GENERATOR = re.compile(r"\{[\w:-]+\}$|\{[.#][\w-]+\}|^\([\w-]+\)=$|^:{3,}", re.MULTILINE)


@functools.cache
def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    counts: dict[str, int] = {}
    slugs = set()
    for heading in HEADING.findall(FENCED.sub("", page.read_text(encoding="utf-8"))):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w -]", "", words.lower()).replace(" ", "-")
        count = counts.get(slug, 0)
        counts[slug] = count + 1
        slugs.add(f"{slug}-{count}" if count else slug)
    return slugs


def broken_anchors(page: Path) -> list[str]:
    broken = []
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        is_here = not link.startswith(("http", "mailto:")) and target.suffix == ".md"
        if is_here and anchor and anchor not in anchors(target):
            broken.append(link)
    return broken


def test_links_lead_to_headings_that_exist() -> None:
    assert by_page(broken_anchors, PAGES) == {}


def directives(page_content: str) -> list[str]:
    """What CommonMark and GitHub would show of a generator's markup, as they render the page."""
    left = []

    def collect(token: Token) -> None:
        if token.type == "fence" and token.info.startswith("{"):
            left.append(token.info)
        if token.type == "text":
            left.extend(FOR_A_GENERATOR.findall(token.content))
        for child in token.children or ():
            collect(child)

    for token in MARKDOWN.parse(page_content):
        collect(token)
    return left


def test_pages_are_plain_markdown() -> None:
    assert by_page(lambda page: directives(page.read_text(encoding="utf-8")), PAGES) == {}


@pytest.mark.parametrize(
    "markup",
    [
        ":::{grid-item-card} A card\n:::\n",
        "```{toctree}\npage\n```\n",
        "![x](x.svg){.only-light}\n",
        "See {ref}`there`.\n",
        "(there)=\n\n# There\n",
    ],
)
def test_markup_of_a_generator_is_seen(markup: str) -> None:
    assert directives(markup) != []


def test_comments_for_the_site_and_github_s_own_markup_are_plain() -> None:
    page = "<!-- site\n```{toctree}\npage\n```\n-->\n\n> [!NOTE]\n> Read.\n\n|a|\n|-|\n|b|\n"
    assert directives(page) == []


#: Columns of code beside both sidebars on a screen of 1,280 pixels; tests/test_site.py looks.
COLUMNS = 88


def long_lines(page: Path) -> list[str]:
    """Lines of code that are wider than a page. What a terminal prints wraps as it does there."""
    blocks = [
        token
        for token in MARKDOWN.parse(page.read_text(encoding="utf-8"))
        if token.type in ("fence", "code_block") and token.info != "text"
    ]
    lines = [line for block in blocks for line in block.content.splitlines()]
    return [line for line in lines if len(line) > COLUMNS]


def test_a_line_of_code_is_no_wider_than_a_page() -> None:
    pages = [page for page in PAGES if page.name != "CHANGELOG.md"]
    assert by_page(long_lines, pages) == {}


def dark_pictures(page: Path) -> list[str]:
    return re.findall(r"(?:!\[[^\]]*\]\(|src=\")[^)\"]*-dark\.svg", page.read_text("utf-8"))


def test_a_picture_is_shown_once() -> None:
    """The dark form is the source of a <picture>, never an image of its own."""
    assert by_page(dark_pictures, PAGES) == {}


NOT_RUN = re.compile(r"<!-- not run: (.+?) -->\n```python\n.*?^```", re.MULTILINE | re.DOTALL)
RUN_ELSEWHERE = {
    "docs/start/building/jit.md",  # tests/builds: each block in a process of its own
    "docs/fails/compat.md",  # tests/torchship/doctor: with an extension to judge
    "docs/gallery",  # tests/test_gallery.py: what they print, too
}


def is_run_here(page: Path) -> bool:
    place = page.relative_to(REPO)
    elsewhere = any(str(one) in RUN_ELSEWHERE for one in (place, *place.parents))
    return not elsewhere and bool(PYTHON.search(NOT_RUN.sub("", page.read_text())))


#: It trains until it has learned, for seconds; the others are quick.
TRAINS = REPO / "docs" / "start" / "index.md"


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name_of(page), marks=[pytest.mark.slow] if page == TRAINS else [])
        for page in filter(is_run_here, PAGES)
    ],
)
def test_python_shown_runs(page: Path) -> None:
    """The blocks of a page in their order, as one program."""
    names = {"__name__": "shown"}
    for block in PYTHON.findall(NOT_RUN.sub("", page.read_text())):
        exec(compile(block, str(page), "exec"), names)


def test_links_of_the_readme_work_on_an_index() -> None:
    """The installed package's metadata is what an index shows."""
    shown = metadata("lltm").get_payload()
    assert "# lltm: one operator, every torch" in shown
    links = [*LINK.findall(shown), *re.findall(r'(?:src|srcset)="([^"]+)"', shown)]
    assert len(links) >= 15
    assert [link for link in links if not link.startswith("https://")] == []


def test_readme_shows_the_two_commands_apart_from_the_three_doors() -> None:
    """Nobody should take them for a step to diagnose, to ship or to train."""
    commands = [line.partition("#")[0].strip() for line in README.splitlines()]
    assert commands.index("scripts/test.sh") == commands.index("scripts/build_all.sh host") + 1
    assert commands.index("scripts/test.sh") > commands.index("cd .. && python -m lltm_conda")


def test_a_page_is_read_in_ten_minutes() -> None:
    """At 250 words a minute. Nobody reads through the changelog."""
    words = {
        name_of(page): len(page.read_text(encoding="utf-8").split())
        for page in PAGES
        if page.stem != "CHANGELOG"
    }
    assert {name: count for name, count in words.items() if count > 2600} == {}


CONDA_INSTALL = re.compile(r"conda install (?!--force-reinstall)([^`#\n]*\blltm\b[^`#\n]*)")


def test_conda_commands_name_both_channels() -> None:
    """Without conda-forge there is no pytorch that the package fits."""
    pages = (REPO / "README.md", REPO / "docs" / "start" / "conda.md")
    for page in pages:
        commands = CONDA_INSTALL.findall(page.read_text())
        assert commands, page
        assert [line for line in commands if not line.startswith("-c conda-forge -c ")] == [], page


def test_api_page_names_every_public_name() -> None:
    import lltm_conda

    page = (REPO / "docs" / "use" / "api.md").read_text()
    described = set(re.findall(r"autoapi\w+:: [\w.]+\.(\w+)$", page, re.MULTILINE))
    public = {name for name in lltm_conda.__all__ if not name.startswith("__")}
    assert public <= described


def options(page: str, heading: str) -> set[str]:
    """The options in the table of one section."""
    section = page.partition(f"## `{heading}")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `(--[\w-]+)", section, re.MULTILINE))


def options_of(parser: argparse.ArgumentParser) -> set[str]:
    """The options of a command, but for that which shows its help."""
    names = {name for action in parser._actions for name in action.option_strings}
    return names - {"-h", "--help"}


def test_commands_page_lists_every_option_of_the_package() -> None:
    from lltm_conda._project import PROJECT
    from lltm_conda.engine.runtime import build_command, command_line
    from torchship.doctor import grammar

    page = (REPO / "docs" / "use" / "commands.md").read_text()
    parsers = {
        f"{PROJECT.command}`": command_line.make_parser(PROJECT),
        f"{PROJECT.command} build": build_command.make_parser(PROJECT),
        "torch-doctor [COMMAND]": grammar.make_parser("check", "torch-doctor"),
    }
    for heading, parser in parsers.items():
        assert options(page, heading) == options_of(parser), heading


def test_commands_page_says_which_command_of_the_doctor_takes_an_option() -> None:
    from torchship.doctor import grammar

    page = (REPO / "docs" / "use" / "commands.md").read_text()
    section = page.partition("| option | of | does |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(--[\w-]+)[^`]*` \| ([^|]*) \|", section, re.MULTILINE)
    assert rows
    takes = {name: options_of(grammar.make_parser(name, "x")) for name in grammar.COMMANDS}
    for option, of in rows:
        expected = {name for name, names in takes.items() if option in names}
        named = set(re.findall(r"`(\w+)`", of))
        assert (takes.keys() - named if of.startswith("all") else named) == expected, option


def test_commands_page_lists_every_option_of_the_release_tool() -> None:
    from torchship.release.options import make_parser

    page = (REPO / "docs" / "use" / "commands.md").read_text()
    assert options(page, "scripts/build_all.sh") == options_of(make_parser("release", "x"))


def test_commands_page_lists_every_command_and_option_of_torchship() -> None:
    from torchship.command import COMMANDS, parser_of

    page = (REPO / "docs" / "use" / "commands.md").read_text()
    section = page.partition("## `torchship")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `([a-z]+)[^`]*` \|(.*)\|$", section, re.MULTILINE))
    assert rows.keys() == {command.name for command in COMMANDS}
    for command in COMMANDS:
        if command.name in ("doctor", "release"):
            continue  # a section of its own has its options
        own_options = options_of(parser_of(command)) - {"--project"}
        assert set(re.findall(r"`(--[\w-]+)", rows[command.name])) == own_options, command.name


def test_install_commands_are_the_same_everywhere() -> None:
    """README's commands are among those of the selector, which docs/install.json holds; the start
    page, where it is read without the site, shows them all."""
    answers = json.loads((REPO / "docs" / "install.json").read_text())["answers"].values()
    offered = {
        answer["command"].removeprefix("FORCE_CUDA=0 ").removeprefix("FORCE_CUDA=1 ")
        for answer in answers
    }

    def install_commands(page: str) -> set[str]:
        commands = re.findall(
            r"^ *(?:FORCE_CUDA=\d )?((?:pip|conda) install .*?)(?: +#.*)?$", page, re.MULTILINE
        )
        return set(commands)

    assert {"pip install dist/lltm-*.whl"} <= install_commands(README) <= offered
    start_page = (REPO / "docs" / "start" / "index.md").read_text(encoding="utf-8")
    assert install_commands(start_page) == offered


def test_selector_answers_every_question() -> None:
    data = json.loads((REPO / "docs" / "install.json").read_text())
    choices = itertools.product(*(options.keys() for options in data["questions"].values()))
    assert {" ".join(choice) for choice in choices} == data["answers"].keys()


def test_no_picture_follows_from_the_matrix() -> None:
    """`generate` writes all that does, and draws nothing: pictures show what was measured."""
    modules = sorted((REPO / "docs" / "_ext").glob("*.py"))
    drawing = [
        path
        for path in modules
        if re.search("^from matplotlib|canvas import", path.read_text(), re.M)
    ]
    assert len(drawing) > 3
    assert not [path.name for path in drawing if "torchship.release" in path.read_text()]


@pytest.mark.slow
def test_pictures_show_what_is_stored(tmp_path: Path) -> None:
    """Text and colours; the last digit of a coordinate may differ between machines.

    `python -m docs._ext.pictures` draws them again.
    """
    pytest.importorskip("matplotlib")
    command = [sys.executable, "-m", "docs._ext.pictures", str(tmp_path)]
    subprocess.run(command, cwd=REPO, check=True)
    drawn = re.compile(r">([^<>]*\S[^<>]*)</text>|<!-- (.*?) -->|(?:fill|stroke): (#\w+)")
    stored = {path.name: drawn.findall(path.read_text()) for path in PICTURES.glob("*.svg")}
    assert stored == {path.name: drawn.findall(path.read_text()) for path in tmp_path.iterdir()}


def test_a_picture_names_each_torch_and_python_that_was_tried() -> None:
    """Numbers of a picture are rounded, and 2.10 is none: a shorter picture once had 2.1 five
    times."""
    stored = REPO / "measurements" / "results" / "environments.json"
    environments = json.loads(stored.read_text())["environments"]
    labels = re.findall(r">([^<>]+)</text>", (PICTURES / "matrix-light.svg").read_text())
    torches = {one["torch"] for one in environments}
    assert "2.10" in torches
    assert torches | {f"Python {one['python']}" for one in environments} <= {*labels}


def test_accuracies_after_a_pause_are_those_of_ten_seeds() -> None:
    facts = json.loads((REPO / "docs" / "use" / "pause.json").read_text())
    assert len(facts["seeds"]) == 10
    page = (REPO / "docs" / "use" / "layer.md").read_text()
    places = [facts["pauses"].index(length) for length in (40, 320, 1280)]
    for kind, runs in facts["accuracy"].items():
        columns = [[100 * run[place] for run in runs] for place in places]
        cells = [f"{median(c):.0f} ({min(c):.0f} to {max(c):.0f})" for c in columns]
        assert f"| {kind} | {' | '.join(cells)} |" in page


OWN_OP_PAGE = REPO / "docs" / "ship" / "own-op.md"


def test_code_of_the_own_op_page_is_that_of_an_op_that_is_built() -> None:
    """tests/torchship/clients builds it, and runs its tests and its example."""
    page = OWN_OP_PAGE.read_text(encoding="utf-8")
    client = REPO / "tests" / "torchship" / "clients" / "kinds" / "scale"
    sources = [
        path.read_text(encoding="utf-8").replace("own_op", "my_scale").replace("own-op", "my-scale")
        for path in client.rglob("*.*")
    ]
    blocks = re.findall(r"^```(?:c\+\+|python)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == len(sources), "a block for each file"
    assert [s for s in sources if not any(block in s for block in blocks)] == []
    assert [block for block in blocks if not any(block in s for s in sources)] == []


def test_the_matrix_of_the_own_op_page_is_the_template_s_shortened() -> None:
    from ruamel.yaml import YAML

    (block,) = re.findall(r"^```yaml\n(.*?)^```", OWN_OP_PAGE.read_text("utf-8"), re.M | re.S)
    yaml = YAML(typ="safe")
    shown = yaml.load(block)
    template = yaml.load(REPO / "torchship" / "templates" / "rms_norm" / "build_matrix.yaml")
    template["project"] |= {
        "distribution": "my-scale",
        "summary": "A tensor times a number",
        "url": "https://github.com/ada/my-scale",
        "package": "my_scale",
        "operator": "scale",
    }

    def other(part: object, whole: object, place: str) -> list[str]:
        """The places of what is not in the whole."""
        if part is None or part == whole:
            return []
        if isinstance(part, dict) and isinstance(whole, dict):
            found = (other(part[k], whole.get(k, "nothing"), f"{place}/{k}") for k in part)
            return [one for places in found for one in places]
        return [place]

    assert other(shown, template, "") == []


def test_the_yaml_for_conda_forge_is_that_of_the_feedstock() -> None:
    page = (REPO / "docs" / "ship" / "conda-forge.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```yaml\nrequirements:\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert block in (REPO / "feedstock" / "recipe.yaml").read_text(encoding="utf-8")


def test_tables_of_data_are_those_of_the_data() -> None:
    from docs._ext import page_tables

    stale = [
        page.name for page in page_tables.TABLES if page.read_text() != page_tables.page_of(page)
    ]
    assert stale == [], "run python -m docs._ext.page_tables"


def test_a_real_message_is_known_to_the_search() -> None:
    """The patterns that the site has; tests/test_site.py searches in a browser."""
    from docs._ext.message_patterns import patterns

    def page_of(message: str) -> str:
        for entry in patterns():
            both = [entry[key].replace("(?<", "(?P<") for key in ("pattern", "also")]
            if all(re.search(pattern, message) for pattern in both):
                return entry["page"]
        return ""

    found = {case.thread: page_of(case.message) for case in THREADS}
    assert found == {case.thread: case.page for case in THREADS}


def test_an_entry_of_the_changelog_is_one_line() -> None:
    lines = (REPO / "CHANGELOG.md").read_text(encoding="utf-8").partition("\n## ")[2].splitlines()
    assert [line for line in lines if line.startswith(" ")] == []
    entries = [line for line in lines if line.startswith("- ")]
    assert entries
    assert len(set(entries)) == len(entries)


def test_a_version_that_is_not_released_is_called_so_everywhere() -> None:
    from lltm_conda import __version__

    changelog = (REPO / "CHANGELOG.md").read_text(encoding="utf-8")
    (state,) = re.findall(rf"^## \[{re.escape(__version__)}\] - (.+)$", changelog, re.MULTILINE)
    in_development = [
        name
        for name in ("README.md", "docs/index.md", "docs/start/index.md")
        if re.search(
            rf"{re.escape(__version__)}\s+is\s+(a\s+development\s+version|in\s+development)",
            (REPO / name).read_text(encoding="utf-8"),
        )
    ]
    assert len(in_development) == (3 if state == "in development" else 0)


#: Words of the glossary, by those that are not used for the same thing.
INSTEAD = {
    r"mend(s|ed|ing)?": "fix",
    r"cures?": "fix",
    r"judg(es|ed|ing)": "check",
    r"unjudged": "unchecked",
    r"figures?": "number, or result",
    r"quick(er|est)": "fast",
    r"may lie anyhow": "may have any strides",
    r"Who has (it|these|them)": "a noun",
    r"Others do it otherwise": "How others do it",
    r"([Ii]nitial|[Rr]ecogn|[Pp]arametr|[Qq]uant|[Oo]ptim|[Nn]ormal)is(e[ds]?|ing|ation)": "-iz-",
    r"[Aa]rtefacts?|[Bb]ehaviour|[Cc]olours?|[Cc]entre|[Ll]icence|[Hh]onoured": "the American word",
}
CODE = re.compile(r"`[^`]*`|\]\([^)]*\)|<!--.*?-->", re.DOTALL)
WRITTEN = [
    page
    for page in [*PAGES, *sorted((REPO / "torchship").rglob("README.md"))]
    if "codes" not in page.parts and page.name != "glossary.md"
]


def words_of_others(page: Path) -> list[str]:
    prose = CODE.sub("", FENCED.sub("", page.read_text(encoding="utf-8")))
    return [
        f"{word} instead of {right}"
        for word, right in INSTEAD.items()
        if re.search(rf"\b{word}\b", prose)
    ]


def test_one_word_is_used_for_one_thing() -> None:
    assert by_page(words_of_others, WRITTEN) == {}


def test_every_trouble_has_message_cause_and_fix() -> None:
    pages = REPO / "docs" / "fails"
    content = (pages / "packages.md").read_text(encoding="utf-8")
    labels = re.findall(r"^\*\*(Message|Cause|Fix)\.\*\*", content, re.MULTILINE)
    assert labels == ["Message", "Cause", "Fix"] * (len(labels) // 3)
    assert len(labels) >= 3 * 10
    for page in pages.glob("codes/td*.md"):
        headings = re.findall(r"^## (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert headings == ["Message", "Cause", "Fix"], page


MET_OFTEN = ("115", "116", "305", "402", "405", "501", "703", "801", "802", "805")


def test_pages_of_codes_that_people_meet_have_commands() -> None:
    folder = REPO / "docs" / "fails" / "codes"
    bare = [
        number
        for number in MET_OFTEN
        if "```sh\n" not in (folder / f"td{number}.md").read_text(encoding="utf-8")
    ]
    assert bare == []


def test_citation_names_the_version() -> None:
    from lltm_conda import __version__

    assert f"\nversion: {__version__}\n" in (REPO / "CITATION.cff").read_text()


def test_security_says_what_is_promised_what_is_not_and_how_to_report() -> None:
    policy = (REPO / "SECURITY.md").read_text()
    _, *sections = (part.split("\n", 1) for part in policy.split("\n## "))
    assert [title for title, _ in sections] == [
        "What is promised",
        "What is not",
        "How to report",
    ]
