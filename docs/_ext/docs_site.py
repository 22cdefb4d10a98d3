"""What this site adds to Sphinx: the install selector, and tables of the project's data."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path

import yaml
from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parents[1]


class Install(Directive):
    """The install selector of install.json: radio buttons, and the command for what is chosen.

    Without JavaScript every command is shown. Its words stand in the page, so that search finds
    them. What the page holds between the directive's lines is for readers of the page's source.
    """

    has_content = True

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


def table(head: list[str], rows: list[list[str]], title: str) -> list[nodes.Node]:
    """A table whose first column names its row."""
    # The theme lets this container scroll sideways, by the keyboard too.
    html = ['<div class="pst-scrollable-table-container">']
    html += [f'<table class="table"><caption>{escape(title)}</caption><thead><tr>']
    html += [f'<th scope="col">{escape(cell)}</th>' for cell in head]
    html.append("</tr></thead><tbody>")
    for first, *rest in rows:
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in rest)
        html.append(f'<tr><th scope="row">{escape(first)}</th>{cells}</tr>')
    html.append("</tbody></table></div>")
    return [nodes.raw("", "".join(html), format="html")]


class Layouts(Directive):
    """The measured layouts of torch's classes."""

    def run(self) -> list[nodes.Node]:
        from lltm_conda.engine.doctor.layouts import FIELDS, LAYOUTS

        head = ["compile-time number", *(f"{major}.{minor}" for major, minor in LAYOUTS)]
        rows = [[name, *(str(row[name]) for row in LAYOUTS.values())] for name in FIELDS]
        return table(head, rows, "Ten numbers for each torch")


class Costs(Directive):
    """How many binaries the matrix would need, and how many it has."""

    def run(self) -> list[nodes.Node]:
        path = DOCS.parent / "build_matrix.yaml"
        matrix = yaml.safe_load(path.read_text(encoding="utf-8"))
        torches = matrix["torch"]
        pythons = matrix["package"]["pythons"]
        pairs = sum(len(torch["pythons"]) for torch in torches.values())
        own = [torch for torch in torches.values() if "aten" in torch]
        glues = 1 + sum(len(set(torch["abi"].values())) for torch in own)
        rows = [
            ["torch minors", str(len(torches))],
            ["Pythons", str(len(pythons))],
            ["pairs of them for which PyPI has a torch", str(pairs)],
            ["extensions that the usual way compiles, CPU and CUDA", str(2 * pairs)],
            ["glue objects here, one a torch ABI", str(glues)],
            [
                "kernel objects here, one a CUDA major and one for the CPU",
                str(len(matrix["kernels"])),
            ],
        ]
        return table(["what", "how many"], rows, "Counted from build_matrix.yaml")


def setup(app: Sphinx) -> dict[str, bool]:
    for name, directive in (("install", Install), ("layouts", Layouts), ("costs", Costs)):
        app.add_directive(name, directive)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
