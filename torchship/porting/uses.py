"""Finds what a C++ or CUDA source uses of torch.

No compiler is asked, so the types of expressions are followed only as far as it takes to tell a
tensor's `x.size(0)` from a vector's `x.size()`: through declarations, `auto`, calls of functions
that return tensors, optionals and lists. Where the type of `x` stays unknown, a method counts as
torch's only if its name is no other library's, such as `x.scalar_type()`.
"""

from collections.abc import Collection, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from .counterparts import (
    INDEXING,
    METHODS,
    Counterpart,
    Status,
    find_macro,
    find_method,
    find_name,
    is_operator,
    shim_row,
    stable_row,
)
from .tokens import Kind, Token


class What(Enum):
    """What a use is."""

    MACRO = "macro"
    METHOD = "method"
    FUNCTION = "function"
    TYPE = "type or constant"
    OPERATOR = "operator"


class Use(NamedTuple):
    """One place that uses torch."""

    what: What
    #: The name in torch, such as `Tensor`, `.size()` or `TORCH_CHECK`.
    name: str
    line: int
    counterpart: Counterpart


class Type(Enum):
    """As much of an expression's type as matters here."""

    TENSOR = "tensor"
    STABLE_TENSOR = "torch::stable::Tensor"
    OPTIONAL = "optional of a tensor"
    LIST = "list of tensors"
    OTHER = "other"


@dataclass
class Facts:
    """What all sources of an extension together say of its names."""

    macros: set[str] = field(default_factory=set)
    namespaces: set[str] = field(default_factory=set)
    functions: set[str] = field(default_factory=set)
    #: The types of what functions return, and of members.
    returned: dict[str, Type] = field(default_factory=dict)
    members: dict[str, Type] = field(default_factory=dict)


#: Namespaces of torch. `::at` is read as `at`.
_ROOTS = ("at", "c10", "torch", "caffe2")
_STABLE_NAMESPACES = ("stable", "headeronly")
#: Namespaces below `torch` that belong to other projects.
_FOREIGN_NAMESPACES = ("executor", "executorch")
_MACRO_PREFIXES = (
    "AT_",
    "C10_",
    "CAFFE2_",
    "CUDA_1D_KERNEL_LOOP",
    "CUDA_KERNEL_",
    "PYBIND11_MODULE",
    "RECORD_FUNCTION",
    "STABLE_TORCH_",
    "STD_CUDA_",
    "STD_TORCH_",
    "THO_",
    "TORCH_",
)
_STABLE_MACROS = ("STD_TORCH_", "STD_CUDA_", "STABLE_TORCH_", "THO_", "TORCH_BOX")
_STABLE_MACRO_NAMES = (
    "TORCH_ABI_VERSION",
    "TORCH_ERROR_CODE_CHECK",
    "TORCH_FAILURE",
    "TORCH_FEATURE_VERSION",
    "TORCH_SUCCESS",
    "TORCH_TARGET_VERSION",
)
_LISTS = ("vector", "array", "initializer_list", "span", "ArrayRef", "List", "SmallVector", "deque")
_OPTIONALS = ("optional", "OptionalTensorRef", "MaybeOwned")
_TENSOR_LISTS = ("TensorList", "ITensorListRef", "variable_list", "tensor_list")
_PASSED_ON = ("move", "forward", "as_const")
_NO_TYPES = frozenset(
    [
        "return",
        "throw",
        "else",
        "new",
        "delete",
        "case",
        "goto",
        "typename",
        "class",
        "struct",
        "enum",
        "union",
        "using",
        "namespace",
        "template",
        "operator",
        "public",
        "private",
        "protected",
        "static_assert",
        "sizeof",
        "co_return",
    ]
)
_QUALIFIERS = ("const", "&", "&&", "*", "volatile", "constexpr", "__restrict__", "__restrict")
#: What operators of C++ call on tensors.
_OPERATORS = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "div",
    "+=": "add_",
    "-=": "sub_",
    "*=": "mul_",
    "/=": "div_",
}
#: Operators whose result is no tensor.
_NUMBERS = frozenset(
    [
        "item",
        "is_pinned",
        "get_num_threads",
        "parallel_for",
        "equal",
        "allclose",
    ]
)
_METHOD_NAMES = frozenset(row.name for row in METHODS)
#: Methods of tensors whose names containers, strings, streams, devices and structs have too.
_SHARED_NAMES = frozenset(
    [
        "data",
        "size",
        "type",
        "device",
        "dim",
        "defined",
        "layout",
        "reset",
        "grad",
        "stride",
        "storage",
        "options",
        "dtype",
        "backward",
        "requires_grad",
        "toString",
        "use_count",
        "is_cuda",
        "is_cpu",
        "accessor",
    ]
)
_TELLTALE = _METHOD_NAMES - _SHARED_NAMES | {"is_cuda", "is_cpu", "contiguous", "unsqueeze"}
#: Functions that make tensors, which code that uses the namespace may call by their name alone.
_FACTORIES = frozenset(
    [
        "empty",
        "zeros",
        "ones",
        "full",
        "empty_like",
        "zeros_like",
        "ones_like",
        "from_blob",
        "tensor",
        "arange",
    ]
)
_OPENING = {"(": ")", "[": "]", "{": "}"}
_CLOSING = {closing: opening for opening, closing in _OPENING.items()}
#: Keywords that begin a declaration.
_STATEMENTS = ("auto", "class", "struct", "union", "namespace", "using")
#: What an optional and a list are asked for a tensor with.
_GETTERS = ("value", "value_or", "get", "front", "back", "at")
_MAX_ALIASES = 8
_MAX_PARTS = 12
_MAX_SCOPES = 64
_ANGLES = {"<": 1, ">": -1, ">>>": -3}
#: How far the `>` of a template's arguments is looked for.
_MAX_TEMPLATE = 80


def pair_brackets(tokens: list[Token]) -> dict[int, int]:
    """Where the partner of each bracket is. A bracket without one has no entry."""
    partners: dict[int, int] = {}
    opened: list[tuple[str, int]] = []
    open_count = dict.fromkeys(_OPENING, 0)
    for place, token in enumerate(tokens):
        if token.kind is not Kind.MARK:
            continue
        if token.text in _OPENING:
            opened.append((token.text, place))
            open_count[token.text] += 1
        elif (opening := _CLOSING.get(token.text)) and open_count[opening] > 0:
            # Of two branches of a condition, only one may close a bracket.
            while opened:
                bracket, start = opened.pop()
                open_count[bracket] -= 1
                if bracket == opening:
                    partners[start] = place
                    partners[place] = start
                    break
    return partners


@dataclass
class _Scope:
    names: dict[str, Type]
    is_class: bool = False
    #: The depth of parentheses around the scope.
    outer_depth: int = 0


@dataclass
class _Auto:
    """Names that `auto` declares, until the end of what gives them their type."""

    names: list[str]
    scopes: int
    depth: int
    #: `for (auto& x : xs)`: the names are elements.
    is_range: bool = False


class _Resolved(NamedTuple):
    """A name of torch."""

    #: Without the first namespace.
    name: str
    is_stable: bool = False


class Reader:
    """Reads one source from its first token to its last.

    In a source that `is_ported`, a tensor whose declaration is not seen is a stable one.
    """

    def __init__(self, tokens: Iterable[Token], facts: Facts, *, is_ported: bool = False) -> None:
        self._tokens = [token for token in tokens if token.kind is not Kind.INCLUDE]
        #: The marks and names; "" for strings and for numbers.
        self._texts = [
            token.text if token.kind in (Kind.MARK, Kind.NAME) else "" for token in self._tokens
        ]
        self._partners = pair_brackets(self._tokens)
        self._facts = facts
        self._is_ported = is_ported
        self._aliases: dict[str, list[str]] = {}
        self._uses_torchs_names = False
        self._scopes = [_Scope({})]
        self._class_follows = False
        self._parameters: dict[str, Type] = {}
        self._depth = 0
        #: The types of expressions, by the place of their last token.
        self._types: dict[int, Type] = {}
        self._autos: list[_Auto] = []
        #: The places of names that a declaration has just given a type.
        self._declared: set[int] = set()

    def uses(self) -> Iterator[Use]:
        """What the source uses of torch; the facts learn from it meanwhile."""
        place = 0
        while place < len(self._tokens):
            token = self._tokens[place]
            if token.kind is Kind.DEFINE:
                self._facts.macros.add(token.text)
            elif token.kind is Kind.MARK:
                yield from self._mark(place)
            elif token.kind is Kind.NAME:
                place = yield from self._name(place)
            place += 1

    def _text(self, place: int) -> str:
        """The mark or name there; "" outside the source, for strings and for numbers."""
        return self._texts[place] if 0 <= place < len(self._texts) else ""

    def _is_name(self, place: int) -> bool:
        return 0 <= place < len(self._tokens) and self._tokens[place].kind is Kind.NAME

    def _use(self, what: What, name: str, place: int, row: Counterpart) -> Use:
        return Use(what=what, name=name, line=self._tokens[place].line, counterpart=row)

    # Brackets, scopes and operators.

    def _mark(self, place: int) -> Iterator[Use]:
        text = self._tokens[place].text
        if text in _OPENING:
            self._open(place, text)
        elif text in _CLOSING:
            yield from self._close(place, text)
        elif text == ";":
            self._end_statement(place)
        elif text == ":":
            self._begin_range(place)
        elif text in _OPERATORS:
            yield from self._operator(place, text)

    def _open(self, place: int, text: str) -> None:
        if text == "(":
            self._depth += 1
        elif text == "{":
            scope = _Scope({}, is_class=self._class_follows, outer_depth=self._depth)
            is_body = self._text(place - 1) in (")", "const", "noexcept", "override", "mutable")
            if is_body or self._depth == 0:
                scope.names = self._parameters
                self._parameters = {}
            self._learn_function(place)
            self._scopes.append(scope)
            self._class_follows = False
            self._depth = 0

    def _learn_function(self, place: int) -> None:
        """Notes the name of a function whose body begins there."""
        start = self._partners.get(place - 1)
        if start is not None and self._is_name(start - 1):
            self._facts.functions.add(self._text(start - 1))

    def _close(self, place: int, text: str) -> Iterator[Use]:
        if text == "}":
            if len(self._scopes) > 1:
                self._depth = self._scopes.pop().outer_depth
            return
        if text == ")":
            self._depth = max(self._depth - 1, 0)
            self._type_autos(place)
        start = self._partners.get(place)
        if start is None:
            return
        if text == "]":
            yield from self._index(start, place)
        elif place not in self._types and place - 1 in self._types and not self._is_call(start):
            self._types[place] = self._types[place - 1]  # (a + b)

    def _is_call(self, start: int) -> bool:
        before = self._text(start - 1)
        if self._is_name(start - 1):
            return before != "return" and before not in _PASSED_ON
        return before in (">", ")", "]")

    def _index(self, start: int, place: int) -> Iterator[Use]:
        indexed = self._types.get(start - 1)
        if indexed is Type.LIST:
            self._types[place] = Type.TENSOR
        elif indexed is Type.TENSOR:
            self._types[place] = Type.TENSOR
            yield self._use(What.OPERATOR, "operator []", place, INDEXING)

    def _operator(self, place: int, text: str) -> Iterator[Use]:
        is_binary = self._text(place + 1) not in (")", ",", ">")
        if self._types.get(place - 1) is Type.TENSOR and is_binary:
            row = find_method(_OPERATORS[text])
            if row is not None:
                yield self._use(What.OPERATOR, f"operator {text}", place, row)

    # Declarations.

    def _end_statement(self, place: int) -> None:
        self._type_autos(place)
        self._class_follows = False
        if self._depth == 0:
            self._parameters = {}

    def _begin_range(self, place: int) -> None:
        if self._autos and self._text(place - 1) in (self._autos[-1].names[-1], "]"):
            self._autos[-1].is_range = True

    def _type_autos(self, place: int) -> None:
        """At the end of a statement or a parenthesis: types the names that `auto` declares."""
        is_semicolon = self._text(place) == ";"
        while self._autos:
            auto = self._autos[-1]
            depth = self._depth if is_semicolon else self._depth + 1
            is_inside = len(self._scopes) > auto.scopes or depth > auto.depth
            if is_inside and len(self._scopes) >= auto.scopes:
                return
            kind = self._types.get(place - 1, Type.OTHER)
            if auto.is_range:
                kind = Type.TENSOR if kind is Type.LIST else Type.OTHER
            for name in auto.names:
                self._declare(name, kind)
            self._autos.pop()

    def _begin_auto(self, place: int) -> None:
        """Notes the names in `auto x = ...`, `auto& x : ...` and `auto [x, y] = ...`."""
        place = self._skip(place + 1, _QUALIFIERS)
        names = [self._text(place)] if self._is_name(place) else []
        if self._text(place) == "[" and place in self._partners:
            end = self._partners[place]
            names = [self._text(each) for each in range(place, end) if self._is_name(each)]
            place = end
        if names and self._text(place + 1) in ("=", ":"):
            self._autos.append(_Auto(names, len(self._scopes), self._depth))

    def _declare(self, name: str, kind: Type) -> None:
        scope = self._scopes[-1]
        if self._depth > 0:
            self._parameters[name] = kind
        elif not scope.is_class:
            scope.names[name] = kind
        elif kind is not Type.OTHER:
            self._facts.members[name] = kind

    def _declare_after(self, place: int, kind: Type) -> None:
        """Declares the names that stand after a type, which ends at the place."""
        place = self._skip(place + 1, _QUALIFIERS)
        parts, end = self._qualified(place)
        if not parts or parts[0] in _NO_TYPES:
            return
        if self._text(end + 1) == "(":
            self._facts.returned[parts[-1]] = kind
        while True:
            self._declare(self._text(end), kind)
            self._declared.add(end)
            # Tensor a, b;
            if self._depth > 0 or self._text(end + 1) != "," or not self._is_name(end + 2):
                return
            end += 2

    def _look_up(self, name: str) -> Type | None:
        if name in self._parameters:
            return self._parameters[name]
        for scope in reversed(self._scopes[-_MAX_SCOPES:]):
            if name in scope.names:
                return scope.names[name]
        return self._facts.members.get(name)

    def _skip(self, place: int, texts: Collection[str]) -> int:
        while self._text(place) in texts:
            place += 1
        return place

    # Names.

    def _name(self, place: int) -> Generator[Use, None, int]:
        """Reads the name that begins there; returns the place of its last token."""
        text = self._text(place)
        before = self._text(place - 1)
        if before in (".", "->"):
            if text != "template":
                yield from self._member(place, place - 2)
            return place
        if before == "template" and self._text(place - 2) in (".", "->"):
            yield from self._member(place, place - 3)
            return place
        if text in _STATEMENTS:
            return self._statement(place, text)
        parts, end = self._qualified(place)
        resolved = self._resolve(parts)
        if resolved is not None and resolved.is_stable:
            yield from self._stable_name(resolved.name, place, end)
        elif resolved is not None:
            yield from self._torchs_name(resolved.name, place, end)
        elif len(parts) > 1:
            self._type_template(parts[-1], end)
        else:
            yield from self._plain_name(text, place)
        return end

    def _statement(self, place: int, text: str) -> int:
        """Reads a keyword that begins a declaration; returns the last place that it used up."""
        if text == "auto":
            self._begin_auto(place)
        elif text in ("class", "struct", "union"):
            self._class_follows = self._text(place - 1) not in ("<", ",")
        elif text == "namespace":
            return self._namespace(place)
        elif text == "using":
            return self._using(place)
        return place

    def _namespace(self, place: int) -> int:
        parts, end = self._qualified(place + 1)
        if not parts:
            return place
        if self._text(end + 1) == "=":
            self._aliases[parts[-1]], end = self._qualified(end + 2)
            return end
        self._uses_torchs_names |= parts[0] in _ROOTS
        self._facts.namespaces.update(part for part in parts if part not in _ROOTS)
        return end

    def _using(self, place: int) -> int:
        if self._text(place + 1) == "namespace":
            parts, end = self._qualified(place + 2)
            parts = self._expanded(parts)
            is_stable = len(parts) > 1 and parts[1] in _STABLE_NAMESPACES
            self._uses_torchs_names |= bool(parts) and parts[0] in _ROOTS and not is_stable
            return max(end, place)
        parts, end = self._qualified(place + 1)
        if len(parts) == 1 and self._text(end + 1) == "=":
            target = self._qualified(self._skip(end + 2, ("typename", "const")))
            if target[0] and target[0] != parts and self._text(target[1] + 1) == ";":
                self._aliases[parts[0]] = target[0]
            return end
        if len(parts) > 1:
            self._aliases[parts[-1]] = parts
        return place

    def _qualified(self, place: int) -> tuple[list[str], int]:
        """The parts of the name that begins there, and the place of its last token."""
        if self._text(place) == "::":
            place += 1
        parts: list[str] = []
        while self._is_name(place):
            parts.append(self._text(place))
            is_last = self._text(place + 1) != "::" or not self._is_name(place + 2)
            if is_last or len(parts) == _MAX_PARTS:
                return parts, place
            place += 2
        return parts, place - 1

    def _expanded(self, parts: list[str]) -> list[str]:
        for _ in range(_MAX_ALIASES):
            alias = self._aliases.get(parts[0]) if parts else None
            if alias is None or alias == parts[: len(alias)]:
                break
            parts = [*alias, *parts[1:]]
        return parts

    def _resolve(self, parts: list[str]) -> _Resolved | None:
        parts = self._expanded(parts)
        if len(parts) > 1 and parts[0] in _ROOTS:
            is_stable = parts[0] == "torch" and parts[1] in _STABLE_NAMESPACES
            return _Resolved("::".join(parts[1:]), is_stable=is_stable)
        name = "::".join(parts)
        row = find_name(name) if self._uses_torchs_names else None
        if row is None or is_operator(row) or self._look_up(name) is not None:
            return None
        return _Resolved(name)

    def _torchs_name(self, name: str, place: int, end: int) -> Iterator[Use]:
        last = name.rpartition("::")[2]
        row = find_name(name) or self._unknown(name)
        if row is None:
            return
        called = self._call_end(end)
        is_function = called is not None and not last[0].isupper()
        what = What.FUNCTION if is_function or is_operator(row) else What.TYPE
        yield self._use(what, name, place, row)
        if called is not None and is_operator(row) and last not in _NUMBERS:
            self._types[called] = Type.TENSOR
        elif name == "Tensor":
            self._declare_after(end, Type.TENSOR)
        elif name in _TENSOR_LISTS:
            self._declare_after(end, Type.LIST)
        else:
            self._type_template(last, end)

    def _stable_name(self, name: str, place: int, end: int) -> Iterator[Use]:
        spelling = f"torch::{name}"
        yield self._use(What.TYPE, spelling, place, stable_row(spelling))
        if name == "stable::Tensor":
            self._declare_after(end, Type.STABLE_TENSOR)

    def _unknown(self, name: str) -> Counterpart | None:
        """The row of a name that the table lacks; None for a name that the extension defines."""
        first, _, rest = name.partition("::")
        if rest and (first in self._facts.namespaces or first in _FOREIGN_NAMESPACES):
            return None
        if name.rpartition("::")[2] in self._facts.functions:
            return None
        return Counterpart(name=name, torch="", status=Status.UNKNOWN)

    def _type_template(self, name: str, end: int) -> None:
        """Declares what stands after an optional or a list of tensors."""
        is_optional = name in _OPTIONALS
        if not (is_optional or name in _LISTS) or self._text(end + 1) != "<":
            return
        closing = self._template_end(end + 1)
        if closing is None:
            return
        parts, last = self._qualified(self._skip(end + 2, ("const", "typename")))
        if parts and parts[-1] in _OPTIONALS:  # a list of optionals
            parts, last = self._qualified(self._skip(last + 2, ("const", "typename")))
        resolved = self._resolve(parts)
        if resolved is None or resolved.name.rpartition("::")[2] != "Tensor":
            return
        if not resolved.is_stable:
            self._declare_after(closing, Type.OPTIONAL if is_optional else Type.LIST)

    def _template_end(self, place: int) -> int | None:
        """Where the template's arguments end that begin there with `<`."""
        texts = self._texts[place : place + _MAX_TEMPLATE]
        if ">" not in texts and ">>>" not in texts:
            return None
        depth = 0
        for end, text in enumerate(texts, place):
            depth += _ANGLES.get(text, 0)
            if depth <= 0:
                return end
            if text in (";", "{"):
                return None
        return None

    def _call_end(self, place: int) -> int | None:
        """Where the call of the name ends whose last token is there; None if it is not called."""
        opening = place + 1
        if self._text(opening) == "<":
            closing = self._template_end(opening)
            opening = closing + 1 if closing is not None else opening
        return self._partners.get(opening) if self._text(opening) == "(" else None

    def _plain_name(self, name: str, place: int) -> Iterator[Use]:
        row = self._macro(name) or shim_row(name)
        if row is not None:
            yield self._use(What.MACRO if name.isupper() else What.FUNCTION, name, place, row)
            return
        self._type_template(name, place)
        called = self._call_end(place)
        if called is not None and name in self._facts.returned:
            self._types[called] = self._facts.returned[name]
        elif called is not None:
            yield from self._unqualified_call(name, place, called)
        if self._is_shadow(place):
            self._declare(name, Type.OTHER)
        kind = self._look_up(name)
        if kind is Type.OPTIONAL and self._is_dereferenced(place):
            kind = Type.TENSOR
        if kind is not None:
            self._types[place] = kind

    def _is_dereferenced(self, place: int) -> bool:
        return self._text(place - 1) == "*" and not (
            self._is_name(place - 2) and self._text(place - 2) != "return"
        )

    def _is_shadow(self, place: int) -> bool:
        """Whether the name is declared there with a type that is no tensor: `int x = 0`."""
        before = self._text(place - 1)
        return (
            self._is_name(place - 1)
            and before not in _NO_TYPES
            and place not in self._declared
            and self._look_up(self._text(place)) is not None
            and self._text(place + 1) in ("=", ";", ",", ")", "{", "[")
        )

    def _macro(self, name: str) -> Counterpart | None:
        is_torchs = name.startswith(_MACRO_PREFIXES) and not name.startswith("AT_HWCAP")
        if name in self._facts.macros or not is_torchs:
            return None
        if name in _STABLE_MACRO_NAMES or name.startswith(_STABLE_MACROS):
            return stable_row(name)
        return find_macro(name) or Counterpart(name=name, torch="", status=Status.UNKNOWN)

    def _unqualified_call(self, name: str, place: int, called: int) -> Iterator[Use]:
        """A call of torch's operator by its name alone, which its first argument leads to."""
        row = find_name(name)
        if row is None or not is_operator(row) or name in self._facts.functions:
            return
        takes_tensor = self._look_up(self._text(place + 2)) is Type.TENSOR
        if takes_tensor or (self._uses_torchs_names and name in _FACTORIES):
            yield self._use(What.FUNCTION, name, place, row)
            if name not in _NUMBERS:
                self._types[called] = Type.TENSOR

    def _member(self, place: int, receiver_place: int) -> Iterator[Use]:
        """Reads the member of what ends at the receiver's place."""
        name = self._text(place)
        receiver = self._types.get(receiver_place)
        called = self._call_end(place)
        if called is None:
            if name in self._facts.members:
                self._types[place] = self._facts.members[name]
            return
        if receiver is Type.OPTIONAL and self._text(place - 1) == "->":
            receiver = Type.TENSOR
        if receiver is Type.OPTIONAL or receiver is Type.LIST:
            if name in _GETTERS:
                self._types[called] = Type.TENSOR
        elif receiver is Type.STABLE_TENSOR or (self._is_ported and self._is_telltale(name)):
            yield self._use(What.METHOD, f".{name}()", place, stable_row(f".{name}"))
        elif receiver is Type.TENSOR or self._is_telltale(name):
            yield from self._method(name, place, called)

    def _is_telltale(self, name: str) -> bool:
        return name in _TELLTALE and name not in self._facts.functions

    def _method(self, name: str, place: int, called: int) -> Iterator[Use]:
        if self._text(place + 1) == "<" and find_method(f"{name}<>") != find_method(name):
            name += "<>"  # x.data_ptr<float>()
        row = find_method(name) or Counterpart(name=name, torch="", status=Status.UNKNOWN)
        yield self._use(What.METHOD, f".{name}()", place, row)
        if is_operator(row) and name not in _NUMBERS:
            self._types[called] = Type.TENSOR
