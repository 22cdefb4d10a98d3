"""The C interface of the kernels for ctypes, read from the headers in csrc."""

from __future__ import annotations

import ctypes
import re
from functools import cache
from pathlib import Path
from typing import Any

CSRC = Path(__file__).resolve().parents[1] / "csrc"
HEADER = CSRC / "kernels" / "lltm_kernels.h"

# How the header declares a type: as an enum, a structure, or a pointer to a function.
_DECLARATION = re.compile(
    r"typedef (?:(?P<kind>enum|struct) \{(?P<body>[^}]*)\} (?P<name>\w+)"
    r"|(?P<result>[\w ]+\*?) ?\(\*(?P<function>\w+)\)\((?P<parameters>[^)]*)\));"
)
_FUNCTION = re.compile(r"(?P<result>.*?)\(\*(?P<name>\w+)\)\((?P<parameters>.*)\)")
_MEMBER = re.compile(r"(?P<type>.*?)(?P<name>\w+)(?:\[(?P<count>\w+)\])?")


class KernelInterface:
    """The types and constants of the header.

    Attributes:
        constants: the numbers that it defines, such as LLTM_KERNEL_ABI.
        types: the C types by name; structures are classes whose fields have the header's names.
    """

    def __init__(self, header: str) -> None:
        text = " ".join(re.sub(r"//[^\n]*", "", header).split())
        self.constants = {
            name: int(value) for name, value in re.findall(r"#define (LLTM_\w+) (\d+)\b", text)
        }
        names = ("int32", "int64", "uint32")
        self.types: dict[str, Any] = {f"{name}_t": getattr(ctypes, f"c_{name}") for name in names}
        for found in _DECLARATION.finditer(text):
            if found["kind"] == "enum":
                self.types[found["name"]] = ctypes.c_int
            elif found["kind"] == "struct":
                members = [part.strip() for part in found["body"].split(";")]
                fields = {"_fields_": [self._field(member) for member in members if member]}
                self.types[found["name"]] = type(found["name"], (ctypes.Structure,), fields)
            else:
                function = self._function(found["result"], found["parameters"])
                self.types[found["function"]] = function

    def _field(self, member: str) -> tuple[str, Any]:
        if found := _FUNCTION.fullmatch(member):
            return found["name"], self._function(found["result"], found["parameters"])
        found = _MEMBER.fullmatch(member)
        if found is None:
            raise ValueError(f"{HEADER.name}: `{member}`: teach kernel_structures.py to read it")
        c_type, count = self._type(found["type"]), found["count"]
        if count is None:
            return found["name"], c_type
        return found["name"], c_type * (self.constants[count] if count[0] == "L" else int(count))

    def _function(self, result: str, parameters: str) -> Any:
        wanted = [] if parameters == "void" else parameters.split(",")
        return ctypes.CFUNCTYPE(*map(self._type, [result, *wanted]))

    def _type(self, declaration: str) -> Any:
        """The type at the beginning of a declaration, with or without a name after it."""
        base, *_ = declaration.replace("const ", "").replace("*", " ").split()
        if "*" not in declaration:
            if base == "void":
                return None
            if base not in self.types:
                raise ValueError(f"the header names the type `{base}` before it declares it")
            return self.types[base]
        special = {"void": ctypes.c_void_p, "char": ctypes.c_char_p}
        return special.get(base) or ctypes.POINTER(self.types[base])

    def table(self, library: ctypes.CDLL) -> Any:
        library.lltm_kernel_table.restype = ctypes.POINTER(self.types["lltm_kernel_functions"])
        return library.lltm_kernel_table().contents


def header_text() -> str:
    """The header, after what it includes of the engine."""
    texts = (path.read_text(encoding="utf-8") for path in (CSRC / "engine/kernel_table.h", HEADER))
    return re.sub(r"PROJECT_SYMBOL\((\w+)\)", r"lltm_\1", "".join(texts))


@cache
def read_header() -> KernelInterface:
    return KernelInterface(header_text())
