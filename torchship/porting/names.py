"""Finds the names of torch in a C++ or CUDA source.

Names are looked up, and types are not followed. A qualified name, a macro or a C function of the
stable ABI says itself that it is torch's. A method is torch's if no container, string or stream has
a method of that name; a method that others have too, such as `x.size(0)`, counts with an argument
that the others do not take, or in a source that names torch's tensor.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from .counterparts import (
    METHODS,
    TYPES,
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


class Use(NamedTuple):
    """One place that uses torch."""

    what: What
    #: The name in torch, such as `Tensor`, `.size()` or `TORCH_CHECK`.
    name: str
    line: int
    counterpart: Counterpart


@dataclass
class Own:
    """Names that look like torch's, but that the extension defines."""

    macros: set[str] = field(default_factory=set)
    namespaces: set[str] = field(default_factory=set)


#: Namespaces of torch.
_ROOTS = frozenset(["at", "c10", "torch", "caffe2"])
_STABLE_NAMESPACES = ("stable", "headeronly")
#: Namespaces below `torch` that belong to other projects.
_FOREIGN_NAMESPACES = frozenset(["executor", "executorch"])
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
_STABLE_MACROS = (
    "STD_TORCH_",
    "STD_CUDA_",
    "STABLE_TORCH_",
    "THO_",
    "TORCH_BOX",
    "TORCH_ABI_VERSION",
    "TORCH_ERROR_CODE_CHECK",
    "TORCH_FAILURE",
    "TORCH_FEATURE_VERSION",
    "TORCH_SUCCESS",
    "TORCH_TARGET_VERSION",
)
#: Methods of tensors whose names others have too. In a source that names the tensor they are its.
_SHARED = frozenset(
    ["device", "dim", "defined", "layout", "dtype", "options", "type", "accessor", "requires_grad"]
)
#: The same, of containers: only a call with an argument is a tensor's.
_WITH_ARGUMENT = frozenset(["size", "stride"])
#: The same, but of so many others that no call is taken for a tensor's.
_OTHERS = frozenset(
    [
        "at",
        "backward",
        "copy",
        "data",
        "empty",
        "fill",
        "get",
        "grad",
        "reset",
        "storage",
        "toString",
        "use_count",
    ]
)
_METHODS = frozenset(row.name.removesuffix("<>") for row in METHODS)
_TELLTALE = (
    (_METHODS | {"contiguous", "unsqueeze", "to", "item", "permute", "view", "is_cuda", "is_cpu"})
    - _SHARED
    - _WITH_ARGUMENT
    - _OTHERS
)
#: Types that a source which opens a namespace of torch may name without it.
_TYPES = frozenset(row.name for row in TYPES)
_MAX_PARTS = 12
_MAX_ALIASES = 8
#: How far the `>` of a template's arguments is looked for.
_MAX_TEMPLATE = 80


def learn(tokens: list[Token], own: Own) -> None:
    """Notes what a source defines under a name that looks like torch's."""
    for place, token in enumerate(tokens):
        if token.kind is Kind.DEFINE:
            own.macros.add(token.text)
        elif token.text == "namespace" and token.kind is Kind.NAME:
            parts, end = _qualified(tokens, place + 1)
            if _text(tokens, end + 1) == "{":
                own.namespaces.update(part for part in parts if part not in _ROOTS)


def find_uses(tokens: list[Token], own: Own) -> Iterator[Use]:
    """What a source uses of torch, given what its extension defines itself."""
    reader = _Reader([token for token in tokens if token.kind is not Kind.INCLUDE], own)
    return reader.uses()


class _Reader:
    def __init__(self, tokens: list[Token], own: Own) -> None:
        self._tokens = tokens
        self._own = own
        self._aliases: dict[str, list[str]] = {}
        self._opens_torch = False
        self._declarations()
        tensors = {
            "::".join(self._expanded(_qualified(tokens, place)[0]))
            for place, token in enumerate(tokens)
            if token.kind is Kind.NAME and _text(tokens, place - 1) != "::"
        }
        self._names_stable = "torch::stable::Tensor" in tensors
        self._names_aten = bool(tensors & {"at::Tensor", "torch::Tensor"}) or (
            self._opens_torch and "Tensor" in tensors
        )

    def _declarations(self) -> None:
        """Reads `using` and the aliases of namespaces; their scopes are not followed."""
        for place, token in enumerate(self._tokens):
            if token.kind is not Kind.NAME or token.text not in ("using", "namespace"):
                continue
            if token.text == "namespace":
                parts, end = _qualified(self._tokens, place + 1)
                if _text(self._tokens, end + 1) == "=" and parts:
                    self._aliases[parts[-1]] = _qualified(self._tokens, end + 2)[0]
                elif parts and _text(self._tokens, place - 1) != "using":
                    self._opens_torch |= parts[0] in _ROOTS
            elif _text(self._tokens, place + 1) == "namespace":
                parts = self._expanded(_qualified(self._tokens, place + 2)[0])
                self._opens_torch |= _is_torchs(parts) and not _is_stable(parts)
            else:
                parts, end = _qualified(self._tokens, place + 1)
                if len(parts) == 1 and _text(self._tokens, end + 1) == "=":
                    target, last = _qualified(self._tokens, end + 2)
                    if target and target != parts and _text(self._tokens, last + 1) == ";":
                        self._aliases[parts[0]] = target
                elif len(parts) > 1:
                    self._aliases[parts[-1]] = parts

    def _expanded(self, parts: list[str]) -> list[str]:
        for _ in range(_MAX_ALIASES):
            alias = self._aliases.get(parts[0]) if parts else None
            if alias is None or alias == parts[: len(alias)]:
                break
            parts = [*alias, *parts[1:]]
        return parts

    def uses(self) -> Iterator[Use]:
        place = 0
        while place < len(self._tokens):
            if self._tokens[place].kind is Kind.NAME:
                place = yield from self._name(place)
            place += 1

    def _name(self, place: int) -> Generator[Use, None, int]:
        """Reads the name that begins there; returns the place of its last token."""
        name = self._tokens[place].text
        line = self._tokens[place].line
        before = _text(self._tokens, place - 1)
        if before == "template":
            before = _text(self._tokens, place - 2)
        if before in (".", "->"):
            if name != "template":
                yield from self._method(name, place)
            return place
        if name in ("using", "namespace") and before != "using":
            return self._behind_declaration(place)
        parts, end = _qualified(self._tokens, place)
        parts = self._expanded(parts)
        if _is_stable(parts):
            spelling = "::".join(parts)
            yield Use(What.TYPE, spelling, line, stable_row(spelling))
        elif _is_torchs(parts) and len(parts) > 1:
            yield from self._torchs("::".join(parts[1:]), line, end)
        elif len(parts) == 1:
            yield from self._unqualified(name, line, end)
        return end

    def _behind_declaration(self, place: int) -> int:
        """The place behind what `using x` or `namespace x` declares, which is no use by itself."""
        is_namespace = self._tokens[place].text == "namespace"
        if _text(self._tokens, place + 1) == "namespace":
            place += 1
        parts, end = _qualified(self._tokens, place + 1)
        if is_namespace and _text(self._tokens, end + 1) == "=":
            _, end = _qualified(self._tokens, end + 2)
        return max(end, place) if parts else place

    def _torchs(self, name: str, line: int, end: int) -> Iterator[Use]:
        first, _, rest = name.partition("::")
        if rest and (first in self._own.namespaces or first in _FOREIGN_NAMESPACES):
            return
        row = find_name(name) or Counterpart(name=name, torch="", status=Status.UNKNOWN)
        last = name.rpartition("::")[2]
        is_function = is_operator(row) or (self._is_called(end) and not last[0].isupper())
        yield Use(What.FUNCTION if is_function else What.TYPE, name, line, row)

    def _unqualified(self, name: str, line: int, end: int) -> Iterator[Use]:
        if row := self._macro(name) or shim_row(name):
            yield Use(What.MACRO if name.isupper() else What.FUNCTION, name, line, row)
        elif self._opens_torch and name in _TYPES and name[0].isupper():
            yield from self._torchs(name, line, end)

    def _macro(self, name: str) -> Counterpart | None:
        is_torchs = name.startswith(_MACRO_PREFIXES) and not name.startswith("AT_HWCAP")
        if name in self._own.macros or not is_torchs:
            return None
        if name.startswith(_STABLE_MACROS):
            return stable_row(name)
        return find_macro(name) or Counterpart(name=name, torch="", status=Status.UNKNOWN)

    def _method(self, name: str, place: int) -> Iterator[Use]:
        if not self._is_called(place) or not self._is_tensors(name, place):
            return
        line = self._tokens[place].line
        if self._names_stable and not self._names_aten:
            yield Use(What.METHOD, f".{name}()", line, stable_row(f".{name}"))
            return
        if _text(self._tokens, place + 1) == "<" and find_method(f"{name}<>") != find_method(name):
            name += "<>"  # x.data_ptr<float>()
        row = find_method(name) or Counterpart(name=name, torch="", status=Status.UNKNOWN)
        yield Use(What.METHOD, f".{name}()", line, row)

    def _is_tensors(self, name: str, place: int) -> bool:
        if name in _WITH_ARGUMENT:
            return _text(self._tokens, place + 2) != ")"
        if name in _TELLTALE:
            return True
        is_known = name in _SHARED or (name not in _OTHERS and find_method(name) is not None)
        return is_known and (self._names_aten or self._names_stable)

    def _is_called(self, place: int) -> bool:
        if _text(self._tokens, place + 1) != "<":
            return _text(self._tokens, place + 1) == "("
        for end in range(place + 2, min(place + _MAX_TEMPLATE, len(self._tokens))):
            if _text(self._tokens, end) in (">", ">>"):
                return _text(self._tokens, end + 1) in ("(", ">")
            if _text(self._tokens, end) in (";", "{"):
                return False
        return False


def _is_torchs(parts: list[str]) -> bool:
    return bool(parts) and parts[0] in _ROOTS


def _is_stable(parts: list[str]) -> bool:
    return len(parts) > 2 and parts[0] == "torch" and parts[1] in _STABLE_NAMESPACES


def _text(tokens: list[Token], place: int) -> str:
    """The mark or name there; "" outside the source, for strings and for numbers."""
    if not 0 <= place < len(tokens) or tokens[place].kind not in (Kind.MARK, Kind.NAME):
        return ""
    return tokens[place].text


def _qualified(tokens: list[Token], place: int) -> tuple[list[str], int]:
    """The parts of the name that begins there, and the place of its last token."""
    if _text(tokens, place) == "::":
        place += 1
    parts: list[str] = []
    while 0 <= place < len(tokens) and tokens[place].kind is Kind.NAME:
        parts.append(tokens[place].text)
        is_last = _text(tokens, place + 1) != "::" or not (
            place + 2 < len(tokens) and tokens[place + 2].kind is Kind.NAME
        )
        if is_last or len(parts) == _MAX_PARTS:
            return parts, place
        place += 2
    return parts, place - 1
