"""Reads build_matrix.yaml; reports every mistake as file:line with the value and what is needed."""

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from packaging.version import Version
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError

from release import MATRIX_FILE, PLATFORM, ReleaseError
from release.schema import FIRST, Kernels, Matrix, Torch

Loc = tuple[str | int, ...]

# The first and the last torch minor with a wheel on PyPI for each CPython.
FIRST_TORCH = {"3.10": "1.11", "3.11": "1.13", "3.12": "2.2", "3.13": "2.5", "3.14": "2.9"}
LAST_TORCH = {"3.8": "2.4", "3.9": "2.8", "3.10": "2.14"}
# The first torch minor whose wheel on PyPI has the C++11 ABI 1.
FIRST_ABI1 = {"linux-x86_64": "2.7", "linux-aarch64": "2.6"}


def contradictions(matrix: Matrix) -> Iterator[tuple[Loc, str]]:
    """Values that have the right form but do not fit together."""
    used = {kernels.toolkit for kernels in matrix.kernels.values()}
    able = [name for name, toolkit in matrix.toolkits.items() if toolkit.nvcc and name in used]
    for version, toolkit in matrix.toolkits.items():
        where: Loc = ("toolkits", version, "clang")
        if toolkit.nvcc and toolkit.clang:
            yield where, f"CUDA {version}: `nvcc: true` and `clang` exclude each other; remove one"
        if version in used and toolkit.clang and toolkit.clang.fatbinary not in able:
            text = f"CUDA {toolkit.clang.fatbinary} brings no fatbinary"
            yield (*where, "fatbinary"), f"{text}; these do: {', '.join(able)}"
    for name, kernels in matrix.kernels.items():
        yield from _kernels(name, kernels, matrix)
    stable, where = matrix.stable, ("stable", "built_with")
    for loc, minor in (
        (("package", "default_torch"), matrix.package.default_torch),
        (("stable", "target"), stable.target),
        (where, stable.built_with),
    ):
        if minor not in matrix.torch:
            known = ", ".join(matrix.minors())
            yield loc, f"torch {minor} has no entry under `torch`; there are {known}"
    if Version(stable.built_with) < Version(stable.target):
        text = f"headers of {stable.built_with} cannot target {stable.target}"
        yield where, f"{text}; name a torch at or above the target"
    built = matrix.torch.get(stable.built_with)
    yield from _devices(("stable", "devices"), where, stable.devices, built, matrix)
    for minor, torch in matrix.torch.items():
        yield from _torch(minor, torch, matrix)


def _kernels(name: str, kernels: Kernels, matrix: Matrix) -> Iterator[tuple[Loc, str]]:
    where: Loc = ("kernels", name)
    if name == "cpu":
        if kernels.toolkit or kernels.archs:
            yield where, "CPU kernels take neither `toolkit` nor `archs`"
    elif kernels.toolkit is None or not kernels.archs:
        yield where, "CUDA kernels need `toolkit` and `archs`"
    elif kernels.toolkit not in matrix.toolkits:
        text = f"toolkit {kernels.toolkit} has no entry under `toolkits`"
        yield (*where, "toolkit"), f"{text}; there are {', '.join(matrix.toolkits)}"
    elif name != f"cuda{kernels.cuda_major}":
        text = f"toolkit {kernels.toolkit} makes kernels named cuda{kernels.cuda_major}"
        yield (*where, "toolkit"), f"{text}, not {name}"
    else:
        able = matrix.toolkits[kernels.toolkit].archs
        for i, arch in enumerate(kernels.archs):
            if int(arch.split("_")[1]) not in able:
                text = f"{arch}: CUDA {kernels.toolkit} has no such architecture; it has {able}"
                yield (*where, "archs", i), text
            if arch in kernels.archs[:i]:
                yield (*where, "archs", i), f"{arch} is listed twice"


def _torch(minor: str, torch: Torch, matrix: Matrix) -> Iterator[tuple[Loc, str]]:
    where: Loc = ("torch", minor)
    if not torch.release.startswith(minor + "."):
        yield (*where, "release"), f"{torch.release} is no release of torch {minor}"
    for i, python in enumerate(torch.pythons):
        text = f"torch {minor} has no wheel for Python {python}"
        if python not in matrix.package.pythons:
            known = matrix.package.pythons
            yield (*where, "pythons", i), f"Python {python} is not in package.pythons ({known})"
        elif Version(FIRST_TORCH.get(python, "0")) > Version(minor):
            yield (*where, "pythons", i), f"{text}; {FIRST_TORCH[python]} is the first"
        elif Version(minor) > Version(LAST_TORCH.get(python, minor)):
            yield (*where, "pythons", i), f"{text}; {LAST_TORCH[python]} is the last"
    abi1 = Version(FIRST_ABI1.get(matrix.platform, FIRST_ABI1[FIRST]))
    if torch.abi.pypi != int(Version(minor) >= abi1):
        text = f"PyPI's torch {minor} is built with C++11 ABI {1 - torch.abi.pypi}"
        yield (*where, "abi"), f"{text}, got {torch.abi.pypi}"
    if torch.abi.conda != 1:
        text = f"conda-forge builds every torch with C++11 ABI 1, got {torch.abi.conda}"
        yield (*where, "abi"), text
    if torch.cxx == 20 and torch.gcc[0] < 10:
        yield (*where, "gcc"), f"C++20 needs g++ 10 or newer, got a lower bound of {torch.gcc[0]}"
    yield from _devices((*where, "aten"), (*where, "gcc"), torch.aten, torch, matrix)


def _devices(
    where: Loc, gcc: Loc, devices: Sequence[str], torch: Torch | None, matrix: Matrix
) -> Iterator[tuple[Loc, str]]:
    """Devices that are repeated or unknown, or for which no g++ compiles glue and kernels."""
    for i, device in enumerate(devices):
        kernels = matrix.kernels.get(device.replace("cu", "cuda"))
        if device in devices[:i]:
            yield (*where, i), f"two equal cells: {device} is listed twice"
        # An op without kernels needs only the glue, which calls torch.
        if kernels is None and (device != "cpu" or matrix.kernels):
            known = ", ".join(name.replace("cuda", "cu") for name in matrix.kernels)
            yield (*where, i), f"{device} has no entry under `kernels`; those have: {known}"
        toolkit = matrix.toolkits.get(kernels.toolkit or "") if kernels else None
        low, high = toolkit.gcc if toolkit else (0, 99)
        if kernels and torch and (torch.gcc[0] > high or torch.gcc[1] < low):
            text = f"no g++ in {list(torch.gcc)} is accepted by CUDA {kernels.toolkit}"
            yield gcc, f"{text}, which takes {[low, high]}"


class MatrixError(ReleaseError):
    """The matrix cannot be used; the text holds one `file:line: problem` per mistake."""


def load(path: Path = MATRIX_FILE, platform: str = PLATFORM) -> Matrix:
    """The checked matrix as it is on a platform; raises MatrixError."""
    try:
        tree = YAML(typ="rt").load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MatrixError(f"{path}: cannot be read ({error.strerror}); restore it") from error
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = (error.problem or "unreadable").splitlines()[0].split(" with value")[0]
        line = mark.line + 1 if mark else 1
        text = f"{path}:{line}: not valid YAML: {problem}; correct the line"
        raise MatrixError(text) from error
    if not isinstance(tree, dict):
        raise MatrixError(
            f"{path}:1: got {str(tree)[:40]!r}, needs a mapping with `schema: 1`; write one"
        )
    problems: dict[str, None] = {}
    found: dict[str, Matrix] = {}
    name = FIRST
    try:
        matrix = Matrix.model_validate(tree)
        for name in matrix.platforms:
            found[name] = matrix.on(name)
            for loc, text in contradictions(found[name]):
                problems[f"{path}:{_line(tree, _place(tree, name, loc))}: {text}"] = None
    except ValidationError as error:
        for detail in error.errors():
            detail["loc"] = _place(tree, name, detail["loc"])
            problems[_schema_problem(path, tree, detail)] = None
    if problems:
        raise MatrixError("\n".join(problems))
    if platform not in found:
        raise MatrixError(f"{path}: no platform is {platform}; there are {', '.join(found)}")
    return found[platform]


def _place(tree: Any, platform: str, loc: Loc) -> Loc:
    """The place of a platform's value in the file: under its `differs`, else the common place."""
    differs: Loc = ("platforms", platform, "differs", *loc[:3])
    node = tree
    for part in differs:
        if not isinstance(node, dict) or part not in node:
            return loc
        node = node[part]
    return (*differs, *loc[3:])


def _line(tree: Any, loc: Iterable[str | int]) -> int:
    """The line of the deepest node on the path `loc` that exists in the file."""
    line = 1
    node = tree
    for part in loc:
        if isinstance(node, dict) and part in node:
            line = node.lc.key(part)[0] + 1
        elif isinstance(node, list) and isinstance(part, int) and part < len(node):
            line = node.lc.item(part)[0] + 1
        else:
            break
        node = node[part]
    return line


def _schema_problem(path: Path, tree: Any, detail: ErrorDetails) -> str:
    loc = tuple(part for part in detail["loc"] if part != "[key]")
    where = f"{path}:{_line(tree, loc)}"
    name = ".".join(str(part) for part in loc)
    kind, got = detail["type"], detail["input"]
    if kind == "extra_forbidden":
        schema = Matrix.model_json_schema(by_alias=True)
        nodes = (schema, *schema["$defs"].values())
        keys = sorted({key for node in nodes for key in node.get("properties", {})})
        near = difflib.get_close_matches(str(loc[-1]), keys, n=2)
        hint = f"did you mean {' or '.join(near)}?" if near else "remove it"
        return f"{where}: unknown key `{name}`; {hint}"
    if kind == "missing":
        return f"{where}: `{name}` is missing; add it"
    needs = detail["msg"].removeprefix("Value error, ").replace("Input should be", "needs")
    near = difflib.get_close_matches(str(got), re.findall(r"'([^']+)'", needs), n=1)
    hint = f"did you mean {near[0]}?" if near and kind == "literal_error" else "correct it"
    if isinstance(got, float) and kind == "string_type":
        hint = 'write versions in quotes ("2.10" is not the number 2.1)'
    return f"{where}: `{name}`: got {got!r}, {needs}; {hint}"
