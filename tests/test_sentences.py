"""The draw of sentences that readers judge: by seed, of prose alone, and stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from measurements import draw_sentences, storage

REPO = Path(__file__).resolve().parents[1]


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(draw_sentences, "REPO", tmp_path)
    return tmp_path / "page.md"


def sentences(page: Path, content: str) -> list[str]:
    page.write_text(content, encoding="utf-8")
    return [sentence.sentence for sentence in draw_sentences.sentences_of(page)]


def test_prose_is_cut_into_sentences(page: Path) -> None:
    content = "# A heading\n\nThe first one has words. The second\none has more words.\n"
    assert sentences(page, content) == [
        "The first one has words.",
        "The second one has more words.",
    ]


@pytest.mark.parametrize(
    "content",
    [
        "```sh\nThis is code and no sentence.\n```\n",
        "| This is a cell of a table. |\n|---|\n",
        "<!-- table:begin -->\nThis part here is generated text.\n<!-- table:end -->\n",
        "Too short to judge.\n",
    ],
    ids=["code", "table", "generated", "short"],
)
def test_what_is_no_prose_is_left_out(page: Path, content: str) -> None:
    assert sentences(page, content) == []


def test_an_item_of_a_list_is_a_sentence_without_its_mark(page: Path) -> None:
    content = "- The first item has some words.\n- The second item has more words.\n"
    assert sentences(page, content) == [
        "The first item has some words.",
        "The second item has more words.",
    ]


def test_a_seed_draws_the_same_sentences_again() -> None:
    assert draw_sentences.draw(7, 20) == draw_sentences.draw(7, 20)
    assert draw_sentences.draw(7, 20) != draw_sentences.draw(8, 20)


def test_a_sentence_counts_if_two_readers_name_it() -> None:
    assert draw_sentences.named_by_two([[1, 2, 2], [2, 3], [3, 4]]) == [2, 3]


def test_a_hundred_sentences_are_stored_with_their_seed() -> None:
    stored = storage.load(draw_sentences.PATH)
    assert isinstance(stored, dict)
    assert len(stored["sentences"]) == 100
    assert f"--seed {stored['seed']}" in stored["command"]
    pages = {sentence["page"] for sentence in stored["sentences"]}
    assert [page for page in pages if not (REPO / page).is_file()] == []
    assert stored["named by two"] == draw_sentences.named_by_two(stored["readers"])
