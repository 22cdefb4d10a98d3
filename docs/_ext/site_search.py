"""What the site's search finds: pages but for the changelog, and messages by pattern.

Sphinx's search wants every word of a question in a page, so a message with a path or a symbol of
the reader's own finds nothing; and it ranks a word by how often a page has it, so that "docker" may
find a list of programs first. `messages.js` holds the patterns by which torch-doctor knows a
message, those of the topics below, and the page of each; `site.js` puts these pages above Sphinx's
results.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from docutils import nodes
from sphinx.application import Sphinx

from .message_patterns import patterns

#: Pages that tell of the past, and would come before those that answer a question.
UNSEARCHED = {"numbers/results", "contribute/changelog"}


class Topic(NamedTuple):
    """What people call a topic, and the page that they want first."""

    pattern: str  #: of the whole question, as JavaScript reads it; capitals do not count
    page: str
    title: str


TOPICS = (
    Topic("undefined symbols?", "fails/codes/td115.html", "Undefined symbols and their causes"),
    Topic("no kernel image.*", "fails/codes/td405.html", "TD405: no code for this GPU"),
    Topic("stable[ -]abi|abi", "ship/stable-abi.html", "The stable ABI of LibTorch"),
    Topic(
        "docker(file)?|containers?|podman|singularity|apptainer|slurm|clusters?",
        "start/containers.html",
        "Containers and clusters",
    ),
    Topic(
        "blackwell|hopper|ada|ampere|turing|volta|rtx *\\d+|sm_?\\d+",
        "fails/faq.html",
        "Which GPUs are supported",
    ),
)


def _leave_out(app: Sphinx, _: nodes.document) -> None:
    name = app.env.docname
    if name in UNSEARCHED:
        app.env.metadata[name]["no-search"] = True


def _write_patterns(app: Sphinx) -> None:
    folder = Path(app.outdir) / "_static"
    folder.mkdir(parents=True, exist_ok=True)
    topics = [topic._asdict() for topic in TOPICS]
    script = (
        f"const KNOWN_MESSAGES = {json.dumps(patterns(), indent=1)};\n"
        f"const KNOWN_TOPICS = {json.dumps(topics, indent=1)};\n"
    )
    (folder / "messages.js").write_text(script, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-read", _leave_out)
    app.connect("builder-inited", _write_patterns)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
