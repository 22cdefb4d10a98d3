"""The page of a manifest: every cell with its state, logs and timings as text, sound HTML."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from small_releases import make_manifest

from torchship.release.matrix.cells import all_cells
from torchship.release.run.manifest import grid, render


def test_the_page_shows_every_cell_in_the_colour_of_its_state(matrix, objects, tmp_path) -> None:
    states = {"stable210-cpu": "done", "stable210-cu13": "partial", "aten29-abi1-cpu": "failed"}
    states["aten24-abi0-cpu"] = "skipped"
    page = render(make_manifest(tmp_path, matrix, states, objects), tmp_path)
    for name, state in states.items():
        assert f'<td class="{state}"><a href="#{name}">{state}</a>' in page
    assert page.count('class="untried"') == len(all_cells(matrix)) - len(states)


class Balance(HTMLParser):
    """Every element that must be closed is, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: set[str] = set()
        self.links: set[str] = set()

    def handle_starttag(self, tag, attrs) -> None:
        attributes = dict(attrs)
        self.ids |= {attributes["id"]} if "id" in attributes else set()
        self.links |= {attributes["href"]} if "href" in attributes else set()
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag) -> None:
        assert self.open.pop() == tag, self.getpos()


def test_the_page_is_sound_html_and_its_links_lead_somewhere(matrix, objects, tmp_path) -> None:
    states = {"stable210-cpu": "done", "stable210-cu13": "partial", "aten29-abi1-cpu": "failed"}
    reader = Balance()
    reader.feed(render(make_manifest(tmp_path, matrix, states, objects), tmp_path))
    assert reader.open == []
    assert reader.links == {f"#{name}" for name in states} <= {f"#{name}" for name in reader.ids}


def test_seconds_of_a_step_that_serves_two_cells_count_once(matrix, objects, tmp_path) -> None:
    states = dict.fromkeys(("stable210-cpu", "stable210-cu12"), "done")
    manifest = make_manifest(tmp_path, matrix, states, objects)
    cells = {
        name: cell.model_copy(update={"steps": {**cell.steps, "glue/stable210": 40.0}})
        for name, cell in manifest.cells.items()
    }
    page = render(manifest.model_copy(update={"cells": cells}), tmp_path)
    totals = re.findall(r'<span class="soft">([\d.]+) s</span></summary>', page)
    assert sorted(map(float, totals)) == [1.5, 41.5]
    assert page.count("40.0 s") == 1 and "in stable210-c" in page


def test_the_report_says_how_many_of_how_many(matrix, objects, tmp_path) -> None:
    states = {"stable210-cpu": "done", "aten29-abi1-cpu": "skipped"}
    page = " ".join(render(make_manifest(tmp_path, matrix, states, objects), tmp_path).split())
    assert f"1 done, 1 skipped of {len(all_cells(matrix))} cells." in page


def test_the_page_needs_nothing_else(matrix, objects, tmp_path) -> None:
    page = render(make_manifest(tmp_path, matrix, {"stable210-cpu": "done"}, objects), tmp_path)
    assert "src=" not in page and "@import" not in page and "<link" not in page
    assert "<script" not in page and "url(" not in page


def test_the_page_holds_logs_and_timings_as_text(matrix, objects, tmp_path) -> None:
    page = render(make_manifest(tmp_path, matrix, {"aten29-abi1-cpu": "failed"}, objects), tmp_path)
    assert "log of aten29-abi1-cpu &amp; &lt;others&gt;" in page
    assert "&lt;failed&gt; because" in page and "<others>" not in page
    assert '<td>wheel/aten29-abi1-cpu</td><td class="number">1.5 s</td>' in page


def test_the_grid_has_a_place_for_every_cell_of_the_matrix(matrix, objects, tmp_path) -> None:
    manifest = make_manifest(tmp_path, matrix, {"stable210-cpu": "done"}, objects)
    rows, columns = grid(manifest)
    assert {name for row in rows.values() for name in row.values()} == {
        cell.name for cell in all_cells(matrix)
    }
    assert columns == ["cpu", "cu12", "cu13"] and next(iter(rows)) == "stable210"


def test_the_page_says_how_its_counts_and_times_fit_together(matrix, objects, tmp_path) -> None:
    """All cells beside those of a whole wheel, and sums of steps beside the wall time."""
    manifest = make_manifest(tmp_path, matrix, {"stable210-cpu": "done"}, objects)
    optional = len(manifest.optional)
    page = render(manifest, tmp_path)
    assert optional > 0
    assert f"{optional} of them are optional" in page
    assert f"holds the other {manifest.total - optional}" in page
    assert "s of wall time" in page
    assert "The time of a cell is the sum of its steps" in page
