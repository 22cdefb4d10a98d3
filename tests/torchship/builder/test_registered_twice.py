"""What two sources of one glue must not register is found before anything is compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchship.builder import BuildError
from torchship.builder.registered_twice import refuse_what_is_registered_twice, registered_twice

BINDS = 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("twice", &twice); }\n'
LIBRARY = 'TORCH_LIBRARY(ns, m) { m.def("twice(Tensor x) -> Tensor"); }\n'
FRAGMENT = LIBRARY.replace("TORCH_LIBRARY", "TORCH_LIBRARY_FRAGMENT").replace("twice", "thrice")


@pytest.mark.parametrize(
    ("first", "second", "what"),
    [
        (BINDS, BINDS, "the operator twice"),
        (LIBRARY, LIBRARY, "TORCH_LIBRARY(ns, ...)"),
    ],
)
def test_what_two_sources_register_is_refused_with_both_and_a_remedy(
    tmp_path: Path, first: str, second: str, what: str
) -> None:
    (tmp_path / "op.cpp").write_text(first)
    (tmp_path / "op.cu").write_text(second)
    with pytest.raises(BuildError) as refused:
        refuse_what_is_registered_twice([tmp_path / "op.cpp", tmp_path / "op.cu"])
    message = str(refused.value)
    assert message.startswith(f"{tmp_path}/op.cpp and {tmp_path}/op.cu both register {what}, ")
    assert "rename it" in message or "TORCH_LIBRARY_FRAGMENT" in message


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (BINDS, BINDS.replace("twice", "thrice")),
        (BINDS, f"#ifdef WITH_CUDA\n{BINDS}#endif\n"),
        (BINDS, f"// {BINDS}"),
        (BINDS, f"/* {BINDS} */"),
        (BINDS, 'static void other() { m.def("twice", &twice); }\n'),
        (LIBRARY, FRAGMENT),
        (LIBRARY, LIBRARY.replace("ns", "other")),
        (LIBRARY, "TORCH_LIBRARY_IMPL(ns, CUDA, m) { }\n"),
    ],
)
def test_what_one_glue_can_hold_is_not_refused(first: str, second: str) -> None:
    assert list(registered_twice({"a.cpp": first, "b.cpp": second})) == []


def test_what_one_source_registers_twice_is_left_to_the_author() -> None:
    """As its two places may stand under conditions that are no lines of the preprocessor."""
    assert list(registered_twice({"a.cpp": BINDS + BINDS})) == []
