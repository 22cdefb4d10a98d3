"""Each name of torch in a source is found, and nothing else is."""

import pytest

from torchship.porting.counterparts import all_rows
from torchship.porting.names import Own, find_uses, learn
from torchship.porting.tokens import tokenize


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("void f(const at::Tensor& x) { x.size(0); }", {"Tensor": 1, ".size()": 1}),
        (
            "void f(torch::Tensor x) { x.data_ptr<float>(); x.data_ptr(); }",
            {"Tensor": 1, ".data_ptr<>()": 1, ".data_ptr()": 1},
        ),
        ("void f(at::Tensor x) { x.template data_ptr<T>(); }", {"Tensor": 1, ".data_ptr<>()": 1}),
        ("auto y = at::mm(a, b).to(at::kFloat);", {"mm": 1, ".to()": 1, "kFloat": 1}),
        (
            "void f(c10::optional<at::Tensor> x) { (*x).dim(); x->dim(); }",
            {"optional": 1, "Tensor": 1, ".dim()": 2},
        ),
        ("struct P { at::Tensor x; }; void f(P p) { p.x.dim(); }", {"Tensor": 1, ".dim()": 1}),
        ("using at::Tensor; void f(Tensor x) { x.dim(); }", {"Tensor": 1, ".dim()": 1}),
        ("using T = at::Tensor; void f(T x) { x.dim(); }", {"Tensor": 2, ".dim()": 1}),
        (
            "using namespace at; void f(Tensor x) { x.dim(); }",
            {"Tensor": 1, ".dim()": 1},
        ),
        ("namespace F = torch::nn::functional; F::pad(x);", {"nn::functional::pad": 1}),
        ("::at::Tensor x;", {"Tensor": 1}),
        ("auto f = [&](at::Tensor x) { return x.dim(); };", {"Tensor": 1, ".dim()": 1}),
        (
            "#define CHECK(x) TORCH_CHECK(x.is_cuda() && x.size())",
            {"TORCH_CHECK": 1, ".is_cuda()": 1},
        ),
    ],
)
def test_a_name_of_torch_is_found(uses, source: str, expected: dict[str, int]) -> None:
    assert uses(source) == expected


def test_a_method_without_a_counterpart_has_a_way_round(uses) -> None:
    assert uses("bool f(at::Tensor x) { return x.is_complex(); }") == {
        "Tensor": 1,
        ".is_complex()": 1,
    }


def test_no_name_of_the_table_ends_the_report(report) -> None:
    names = [row.name.rstrip("*") for row in all_rows()]
    calls = [f"x.{name}(); at::{name}(x); {name}(x);" for name in names]
    made = report(f"void f(at::Tensor x) {{ {' '.join(calls)} }}")
    assert made.to_port >= len(names)
    assert made.headers >= made.torch


@pytest.mark.parametrize(
    "source",
    [
        "void f(std::vector<int> x) { x.size(); x.data(); }",
        "void f(std::string x) { x.at(0); x.empty(); }",
        "void f(Own x) { x.size(); x.stride(); x.data(); x.dim(); }",
        'auto text = "at::empty(x)"; // at::zeros',
        "float max(float a, float b); float c = max(a, b);",
        "namespace mine { void empty(); } mine::empty();",
        "#define TORCH_MINE(x) x\nTORCH_MINE(1);",
        "namespace torch::mine { int f(); } int x = torch::mine::f();",
        "torch::executor::Error e;",
    ],
)
def test_what_is_not_torchs_is_left_alone(uses, source: str) -> None:
    # What the namespace `torch` is opened for stays the extension's own.
    assert uses(source) == {}


def test_a_ported_source_uses_the_stable_abi_alone(report) -> None:
    ported = report(
        "#include <torch/csrc/stable/tensor.h>\n"
        "#define CHECK(x) STD_TORCH_CHECK(x.is_cuda())\n"
        "using torch::stable::Tensor;\n"
        "Tensor f(const Tensor& x) { CHECK(x); x.sizes(); return torch::stable::sum(x); }\n"
    )
    assert ported.to_port == 0
    assert ported.torch == "2.10"


HOSTILE = [
    "(",
    ")",
    "{",
    "}",
    "[",
    "<",
    "x<",
    "at::",
    "::",
    "at::Tensor ",
    "at::Tensor x,",
    "auto x = ",
    "auto [",
    "using x = ",
    "using a = b; using b = a; a::x ",
    "namespace x { ",
    "x.y(",
    "std::vector<",
    "#if 0\n",
    "/*",
    'R"(',
    "'",
    '"',
    "\\\n",
    "\x00",
    "\ud7ff",
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_hostile_source_is_read_to_its_end(piece: str) -> None:
    """A reader that goes back over what it has read would not come to its end here."""
    tokens = tokenize(piece * 4000)
    assert len(tokens) <= len(piece) * 4000
    own = Own()
    learn(tokens, own)
    uses = list(find_uses(tokens, own))
    assert len(uses) <= len(tokens)
