"""Dresses up pages that are plain Markdown, so that they read as they are and as a site.

A page holds CommonMark with GitHub's tables and alerts, and nothing else. Two comments, which no
reader of the page sees, tell the site what it needs beyond that:

    <!-- site
    Markdown with Sphinx's directives, for the site alone.
    -->

    <!-- no-site:begin -->
    What stands in its place where the page is read as it is.
    <!-- no-site:end -->

A `<picture>` with a dark and a light source becomes two images, of which the theme shows one.
"""

from __future__ import annotations

import re

from sphinx.application import Sphinx

_SITE = re.compile(r"^<!-- site\n(.*?)^-->$", re.MULTILINE | re.DOTALL)
_NO_SITE = re.compile(
    r"^<!-- no-site:begin -->\n.*?^<!-- no-site:end -->$", re.MULTILINE | re.DOTALL
)
_PICTURE = re.compile(
    r'<picture>\s*<source media="\(prefers-color-scheme: dark\)" srcset="(?P<dark>[^"]+)">'
    r'\s*<img src="(?P<light>[^"]+)" alt="(?P<alt>[^"]*)">\s*</picture>'
)


def dressed(page: str) -> str:
    """The page as the site builds it."""
    for_site = _NO_SITE.sub("", page)
    with_directives = _SITE.sub(lambda comment: comment[1], for_site)
    # Front matter counts only at the very beginning.
    return _PICTURE.sub(_two_images, with_directives).lstrip("\n")


def _two_images(picture: re.Match[str]) -> str:
    return (
        f"![{picture['alt']}]({picture['light']}){{.only-light}}"
        f"![{picture['alt']}]({picture['dark']}){{.only-dark}}"
    )


def _dress(_: Sphinx, __: str, source: list[str]) -> None:
    source[0] = dressed(source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", _dress)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
