"""What this site adds to Sphinx: the install selector, and docstrings that are read anew."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

DOCS = Path(__file__).resolve().parents[1]


class Install(Directive):
    """The install selector of install.json: radio buttons, and the command for what is chosen.

    Without JavaScript every command is shown. Its words stand in the page, so that search finds
    them.
    """

    def run(self) -> list[nodes.Node]:
        data = json.loads((DOCS / "install.json").read_text(encoding="utf-8"))
        self.state.document.settings.env.note_dependency(str(DOCS / "install.json"))
        html = ['<form class="install" aria-label="Which command installs lltm">']
        for question, options in data["questions"].items():
            html.append(f"<fieldset><legend>{question}</legend>")
            for value, label in options.items():
                html.append(
                    f'<label><input type="radio" name="{question}" value="{value}"> '
                    f"{escape(label)}</label>"
                )
            html.append("</fieldset>")
        html.append("</form>")
        for key, answer in data["answers"].items():
            html.append(
                f'<div class="install-answer" data-for="{key}"><p>{escape(key)}</p>'
                f'<pre tabindex="0"><code>{escape(answer["command"])}</code></pre>'
                f"<p>{escape(answer['note'])}</p></div>"
            )
        return [nodes.raw("", "\n".join(html), format="html")]


def pages_with_docstrings(
    _app: Sphinx, env: BuildEnvironment, _added: set[str], _changed: set[str], _removed: set[str]
) -> list[str]:
    """Pages that show docstrings: Sphinx keeps them although a source has changed."""
    return [
        name
        for name in env.found_docs
        if "autoapi" in Path(env.doc2path(name)).read_text(encoding="utf-8")
    ]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("install", Install)
    app.connect("env-get-outdated", pages_with_docstrings)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
