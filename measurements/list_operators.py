"""Writes torchship/porting/operators.json: which of torch's operators the stable ABI can call.

    python -m measurements.list_operators --oldest DIR

The schemas are those of the torch that runs this. DIR is the `torch` folder of the oldest torch
whose stable ABI can call any operator, 2.10; it need not run here, only its library is read.
"""

import argparse
import json
import re
from collections import defaultdict
from pathlib import Path

import torch

TABLE = Path(__file__).parents[1] / "torchship/porting/operators.json"
#: The types that torch converts from and to a StableIValue (torch/csrc/shim_common.cpp).
CONVERTED = {
    "Tensor",
    "int",
    "bool",
    "float",
    "str",
    "ScalarType",
    "Device",
    "Layout",
    "MemoryFormat",
}
_WRAPPED = re.compile(r"(?:Optional|List)\[(.*)\]")
_SHIM = re.compile(r"\baoti_torch_cpu_(\w+)\(")
#: A schema as torch registers it: the operator's name and overload before its arguments.
_SCHEMA = re.compile(
    rb"[\0\n](?:aten::)?(\w+)(?:\.\w+)?\((?:[A-Z][\w\[\]?!()]* |int|float|str|bool|\*|\))"
)
#: The words for what has no conversion, by the schema's name for it.
_TYPES = {"number": "Scalar"}


def unconverted(schema: torch.FunctionSchema) -> str:
    """The first type of an argument or a result that has no conversion; "" if all have one."""
    for argument in (*schema.arguments, *schema.returns):
        declared = inner = str(argument.real_type)
        while wrapped := _WRAPPED.fullmatch(inner):
            inner = wrapped[1]
        # A generator may be left out: None is converted.
        is_left_out = inner == "Generator" and declared.startswith("Optional")
        if inner not in CONVERTED and not is_left_out:
            return _TYPES.get(inner, inner)
    return ""


def overloads() -> dict[str, dict[str, str]]:
    """What hinders each overload of each of the dispatcher's ATen operators, without outputs."""
    registered = set(torch._C._dispatch_get_all_op_names())
    operators: dict[str, dict[str, str]] = defaultdict(dict)
    for schema in torch._C._jit_get_all_schemas():
        namespace, _, name = schema.name.partition("::")
        dotted = f"{schema.name}.{schema.overload_name}".rstrip(".")
        if namespace == "aten" and dotted in registered:
            operators[name][schema.overload_name] = unconverted(schema)
    return operators


def preferred(names: list[str]) -> str:
    """The overload that a C++ call most likely means: no name, tensors, and no output last."""
    return min(names, key=lambda name: (name.endswith("out"), name not in ("", "Tensor"), name))


def shims() -> dict[str, str]:
    """The C functions of AOTInductor for operators, by the operator's name, the shortest first."""
    header = Path(torch.__file__).parent / (
        "include/torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h"
    )
    names = sorted(set(_SHIM.findall(header.read_text(encoding="utf-8"))), key=len, reverse=True)
    return {name: f"aoti_torch_cpu_{name}" for name in names}


def shim_of(name: str, overload_names: list[str], functions: dict[str, str]) -> str:
    candidates = [name, *(f"{name}_{overload}" for overload in sorted(overload_names))]
    return next((functions[each] for each in candidates if each in functions), "")


def make_table(oldest: Path | None) -> dict[str, object]:
    functions = shims()
    callable_overloads: dict[str, str] = {}
    partly: list[str] = []
    blocked: dict[str, dict[str, str]] = {}
    for name, hindrances in sorted(overloads().items()):
        free = [overload for overload, hindrance in hindrances.items() if not hindrance]
        if free:
            callable_overloads[name] = preferred(free)
            if "Scalar" in hindrances.values():
                partly.append(name)
        else:
            hindrance = next(iter(sorted(hindrances.values())))
            shim = shim_of(name, list(hindrances), functions)
            blocked[name] = {"type": hindrance, "shim": shim}
    names = {*callable_overloads, *blocked}
    later = sorted(names - registered_in(oldest)) if oldest is not None else []
    return {
        "torch": torch.__version__.partition("+")[0],
        "callable": callable_overloads,
        "partly": partly,
        "blocked": blocked,
        "later": later,
    }


def registered_in(folder: Path) -> set[str]:
    """The names in the schemas that a torch's library holds."""
    library = (folder / "lib/libtorch_cpu.so").read_bytes()
    names = {name.decode() for name in _SCHEMA.findall(library)}
    # Torch registers these by other means than a schema of their own.
    return names | {"dropout_", "alpha_dropout_", "real", "conj", "transpose_"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--oldest", type=Path, metavar="DIR", help="a folder of torch 2.10")
    options = parser.parse_args()
    TABLE.write_text(json.dumps(make_table(options.oldest), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
