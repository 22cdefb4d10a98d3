"""docs/ship/helpers.md names what the headers have, and both doors have the same."""

from __future__ import annotations

import re
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
HEADERS = REPO / "torchship" / "include" / "torchship"
PAGE = (REPO / "docs" / "ship" / "helpers.md").read_text(encoding="utf-8")
# What the kernels' calls need, which no operator calls itself.
INTERNAL = {"parallel_for", "blas_handle", "dtype_code", "cpu"}


def functions(header: str) -> set[str]:
    """The public static functions of the structs in a header."""
    public = re.sub(r"(?s) private:.*?\n\};", "", (HEADERS / header).read_text(encoding="utf-8"))
    public = re.sub(r"PROJECT_SYMBOL\((\w+)\)", r"\1", public)
    return set(re.findall(r"(?m)^  static (?!constexpr).*?\b(\w+)\(", public))


SHARED = functions("door.h")


def test_both_doors_have_the_same_helpers() -> None:
    assert functions("torch_stable/torch.h") == functions("torch_aten/torch.h") != set()


def test_the_page_names_every_helper() -> None:
    helpers = (SHARED | functions("torch_stable/torch.h")) - INTERNAL
    assert {name for name in helpers if not re.search(rf"\b{name}[(<]", PAGE)} == set()


def test_the_page_names_no_helper_that_is_not_there() -> None:
    known = SHARED | functions("torch_aten/torch.h") | {"Tensor", "DeviceArgument", "DtypeArgument"}
    assert {*re.findall(r"Torch::(\w+)", PAGE)} - known == {"DeviceGuard"}


OFFERED = {
    "register.h": r"\b(kOn\w+|kAutocast\w*) =",
    "kernels/types.h": r"(?m)^(?:struct|using) (\w+)(?: \{| =)",
    "kernels/dispatch.h": r"(?m)^(?:using|const char\*) (\w+)[ (]",
    "guards.h": r"(?m)^  static void (\w+)\(",
}


def test_the_page_names_what_other_headers_offer() -> None:
    for header, pattern in OFFERED.items():
        names = re.findall(pattern, (HEADERS / header).read_text(encoding="utf-8"))
        assert names, header
        assert [name for name in names if name not in PAGE] == [], header
