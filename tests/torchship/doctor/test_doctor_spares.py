"""A wheel for many torches is no fault: of the variants in a folder, one that works is enough."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchship.doctor.decide import FAILS, REMARK, WORKS
from torchship.doctor.report.rows import Row
from torchship.doctor.spares import pass_over_spares


def row(name: str, state: str, folder: str = "lib") -> Row:
    return Row(path=Path(folder, name), state=state, summary="built for torch 2.4")


def states(*rows: Row) -> list[str]:
    return [judged.state for judged in pass_over_spares(rows)]


def test_a_glue_for_another_torch_beside_one_that_works_is_a_remark() -> None:
    spare = row("glue-aten24-abi0.so", FAILS)
    working = row("glue-stable210.so", WORKS)
    judged = pass_over_spares([spare, working])
    assert [one.state for one in judged] == [REMARK, WORKS]
    assert judged[0].summary == "not for here, where glue-stable210.so serves: built for torch 2.4"


@pytest.mark.parametrize(
    "other",
    [
        row("glue-stable210.so", WORKS, folder="elsewhere"),
        row("kernels-cpu.so", WORKS),
        row("glue-stable210.so", FAILS),
        row("_C.so", WORKS),
    ],
    ids=["in another folder", "kernels", "that fails, too", "an extension of another kind"],
)
def test_a_glue_that_fails_without_one_that_works_fails(other: Row) -> None:
    assert states(row("glue-aten24-abi0.so", FAILS), other)[0] == FAILS


def test_an_extension_that_fails_beside_one_that_works_fails() -> None:
    """Its name does not say that it is one of several."""
    assert states(row("_C.so", FAILS), row("_extra.so", WORKS))[0] == FAILS
