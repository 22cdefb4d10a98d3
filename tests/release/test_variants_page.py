"""The stored table of wheel variants: the page shows it, and installers took what it says."""

from __future__ import annotations

from typing import cast

import pytest

from measurements import storage, wheel_variants


@pytest.fixture(scope="module")
def stored() -> wheel_variants.Results:
    return cast(wheel_variants.Results, storage.load(wheel_variants.PATH))


def test_the_page_shows_the_stored_table_of_installers(stored) -> None:
    page = wheel_variants.PAGE.read_text(encoding="utf-8")
    assert wheel_variants.draw(page, stored) == page


def test_the_stored_table_says_what_installers_took(stored) -> None:
    uv_with_variants, *others = stored["taken"].values()
    assert uv_with_variants == {
        "none": "null",
        "11.8": "null",
        "12.8": "cu12",
        "13.0": "cu13",
        "13.2": "cu13",
    }
    assert [{*labels.values()} for labels in others] == [{"plain"}, {"plain"}]
