"""The tokenizer sees what a compiler sees of a source."""

import pytest

from torchship.porting.tokens import Kind, tokenize


def names(source: str) -> list[str]:
    return [token.text for token in tokenize(source) if token.kind is Kind.NAME]


@pytest.mark.parametrize(
    "source",
    [
        "a // at::empty\nb",
        "a // at::empty \\\nat::zeros\nb",
        "a /* at::empty\nat::zeros */ b",
        'a "at::empty" b',
        'a "\\"at::empty" b',
        'a u8R"x(at::empty )" )x" b',
        "a '\"' b",
        "a\n#if 0\nat::empty\n#if X\n#endif\nat::zeros\n#endif\nb",
        "a\n#if 0\nat::empty\n#else\nb\n#endif",
        "a\n#error at::empty\nb",
    ],
    ids=[
        "comment",
        "spliced comment",
        "block",
        "string",
        "quote in a string",
        "raw string",
        "character",
        "if 0",
        "else of if 0",
        "error",
    ],
)
def test_what_a_compiler_leaves_out_is_no_name(source: str) -> None:
    assert names(source) == ["a", "b"]


def test_both_branches_of_another_condition_are_read() -> None:
    assert names("#ifdef X\na\n#else\nb\n#endif") == ["X", "a", "b"]


def test_the_body_of_a_macro_is_read_with_its_own_lines() -> None:
    tokens = tokenize("#define CHECK(x) \\\n  TORCH_CHECK(x)\nlast")
    assert [(token.kind, token.text, token.line) for token in tokens if token.text != "x"] == [
        (Kind.DEFINE, "CHECK", 1),
        (Kind.MARK, "(", 1),
        (Kind.MARK, ")", 1),
        (Kind.NAME, "TORCH_CHECK", 2),
        (Kind.MARK, "(", 2),
        (Kind.MARK, ")", 2),
        (Kind.NAME, "last", 3),
    ]


def test_an_include_is_one_token_and_its_path_no_name() -> None:
    tokens = tokenize('#include <ATen/ATen.h>\n#  include "own.h"')
    assert [(token.kind, token.text) for token in tokens] == [
        (Kind.INCLUDE, "ATen/ATen.h"),
        (Kind.INCLUDE, "own.h"),
    ]


def test_a_digit_separator_begins_no_character() -> None:
    assert names("int x = 1'000'000; y") == ["int", "x", "y"]
