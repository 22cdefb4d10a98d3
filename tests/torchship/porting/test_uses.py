"""What a source uses of torch is found, and nothing else is."""

import pytest

from torchship.porting.tokens import tokenize
from torchship.porting.uses import Facts, Reader


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("void f(const at::Tensor& x) { x.size(0); }", {"Tensor": 1, ".size()": 1}),
        (
            "void f(torch::Tensor x) { x.data_ptr<float>(); x.data_ptr(); }",
            {"Tensor": 1, ".data_ptr<>()": 1, ".data_ptr()": 1},
        ),
        ("void f(at::Tensor x) { x.template data_ptr<T>(); }", {"Tensor": 1, ".data_ptr<>()": 1}),
        ("auto f() { auto x = at::empty({1}); x.size(0); }", {"empty": 1, ".size()": 1}),
        ("auto y = at::mm(a, b).to(at::kFloat);", {"mm": 1, ".to()": 1, "kFloat": 1}),
        (
            "void f(std::optional<at::Tensor> x) { x.value().size(0); x->dim(); }",
            {"Tensor": 1, ".size()": 1, ".dim()": 1},
        ),
        (
            "void f(c10::optional<at::Tensor> x) { auto y = *x; (*x).dim(); y.dim(); }",
            {"optional": 1, "Tensor": 1, ".dim()": 2},
        ),
        (
            "void f(std::vector<at::Tensor> xs) { for (auto& x : xs) { x.dim(); } xs[0].dim(); }",
            {"Tensor": 1, ".dim()": 2},
        ),
        ("struct P { at::Tensor x; }; void f(P p) { p.x.dim(); }", {"Tensor": 1, ".dim()": 1}),
        (
            "at::Tensor f(); void g() { auto x = f(); x.dim(); f().dim(); }",
            {"Tensor": 1, ".dim()": 2},
        ),
        ("void f(at::Tensor a, at::Tensor b) { a + b; a[0]; }", None),
        (
            "void f(at::Tensor x) { auto [a, b] = at::sort(x); a.dim(); b.dim(); }",
            {"Tensor": 1, "sort": 1, ".dim()": 2},
        ),
        ("using at::Tensor; void f(Tensor x) { x.dim(); }", {"Tensor": 2, ".dim()": 1}),
        ("using T = at::Tensor; void f(T x) { x.dim(); }", {"Tensor": 2, ".dim()": 1}),
        (
            "using namespace at; void f(Tensor x) { x.dim(); auto y = empty({1}); y.dim(); }",
            {"Tensor": 1, ".dim()": 2, "empty": 1},
        ),
        ("namespace F = torch::nn::functional; F::pad(x);", {"nn::functional::pad": 1}),
        ("::at::Tensor x;", {"Tensor": 1}),
        ("void f(at::Tensor x) { cat_rows(x); empty_like(x); }", {"Tensor": 1, "empty_like": 1}),
        ("auto f = [&](at::Tensor x) { return x.dim(); };", {"Tensor": 1, ".dim()": 1}),
        (
            "void f(at::Tensor x, int n = {}) { auto y = std::move(x); y.dim(); }",
            {"Tensor": 1, ".dim()": 1},
        ),
    ],
)
def test_a_tensors_use_is_found(uses, source: str, expected: dict[str, int] | None) -> None:
    found = uses(source)
    if expected is None:
        expected = {"Tensor": 2, "operator +": 1, "operator []": 1}
    assert found == expected


@pytest.mark.parametrize(
    "source",
    [
        "void f(std::vector<int> x) { x.size(); x.data(); }",
        "void f(std::string x) { x.at(0); x.empty(); }",
        "int size = x.size(0) * y.stride(1);",
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


def test_a_name_in_an_inner_scope_hides_the_tensor(uses) -> None:
    source = "void f(at::Tensor x) { x.size(0); { std::string x = g(); x.size(); } x.size(1); }"
    assert uses(source)[".size()"] == 2


def test_parameters_end_with_their_function(uses) -> None:
    source = "void f(at::Tensor x) { x.size(0); } void g(Own x) { x.size(); }"
    assert uses(source)[".size()"] == 1


def test_parameters_end_with_their_declaration(uses) -> None:
    source = "void f(at::Tensor x); void g() { x.size(); }"
    assert ".size()" not in uses(source)


def test_types_are_known_across_files(uses) -> None:
    header = "struct Parameters { at::Tensor weight; }; at::Tensor make();"
    source = "void f(Parameters p) { p.weight.size(0); make().size(0); }"
    assert uses(source, header)[".size()"] == 2


def test_a_method_that_only_tensors_have_needs_no_type(uses) -> None:
    assert uses("#define CHECK(x) TORCH_CHECK(x.is_cuda() && x.size())") == {
        "TORCH_CHECK": 1,
        ".is_cuda()": 1,
    }


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
    tokens = tokenize(piece * 10_000)
    assert len(tokens) <= len(piece) * 10_000
    uses = list(Reader(tokens, Facts()).uses())
    assert len(uses) <= len(tokens)
