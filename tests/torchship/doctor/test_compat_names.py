"""Names of binaries and variants: parsing and rendering are inverse."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchship.judge.records import (
    GlueName,
    KernelsName,
    NameFormatError,
    VariantName,
    file_name,
    parse_file_name,
)

GLUES = [
    *(GlueName("stable", (2, minor)) for minor in range(40)),
    *(GlueName("aten", (2, minor), abi) for minor in range(40) for abi in (0, 1)),
    GlueName("stable", (3, 0)),
    GlueName("aten", (9, 99), 1),
]
KERNELS = [KernelsName(), *(KernelsName(major) for major in range(1, 30))]


def test_every_variant_of_the_product_survives_a_round_trip() -> None:
    names = set()
    for glue, kernels in itertools.product(GLUES, KERNELS):
        variant = VariantName(glue, kernels)
        assert VariantName.parse(str(variant)) == variant
        names.add(str(variant))
    assert len(names) == len(GLUES) * len(KERNELS)  # no two variants share a name


def test_file_names_survive_a_round_trip() -> None:
    names = [*GLUES, *KERNELS]
    parsed = [parse_file_name(file_name(name)) for name in names]
    assert [(type(name), name) for name in parsed] == [(type(name), name) for name in names]


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("stable210-cpu", VariantName(GlueName("stable", (2, 10)), KernelsName())),
        ("stable210-cu13", VariantName(GlueName("stable", (2, 10)), KernelsName(13))),
        ("aten24-abi0-cpu", VariantName(GlueName("aten", (2, 4), 0), KernelsName())),
        ("aten29-abi1-cu12", VariantName(GlueName("aten", (2, 9), 1), KernelsName(12))),
    ],
)
def test_documented_names(name: str, variant: VariantName) -> None:
    assert VariantName.parse(name) == variant
    assert str(variant) == name


@pytest.mark.parametrize(
    "name",
    ["", "cpu", "stable210", "aten24-cpu", "stable210-abi1-cpu", "aten24-abi2-cpu", "aten024-abi0",
     "stable2010-", "stable210-cuda13", "stable210-cu013", "stable210-CPU", " stable210-cpu"],
)  # fmt: skip
def test_what_is_no_variant_is_refused_by_name(name: str) -> None:
    with pytest.raises(NameFormatError, match=r"is no|carries"):
        VariantName.parse(name)


@given(st.text(max_size=30))
def test_any_text_is_refused_or_is_what_it_renders_to(name: str) -> None:
    try:
        variant = VariantName.parse(name)
    except NameFormatError:
        return
    assert str(variant) == name


@pytest.mark.parametrize("name", ["tiny.so", "glue-.so", "glue-stable210", "kernels-cuda.so", ""])
def test_foreign_files_have_no_name_of_ours(name: str) -> None:
    assert parse_file_name(name) is None
