"""Reads and checks build_matrix.yaml; names the line of each mistake that the checks find."""

import copy
import difflib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import reduce
from operator import getitem
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import Version
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import MarkedYAMLError

from .. import ReleaseError
from ..root import MATRIX_NAME, find_root
from .platforms import FIRST, facts_of
from .schema import Kernels, Matrix, Toolkit, Torch
from .settings import PLATFORM_VARIABLE, Settings, make_settings, native_platform

Loc = tuple[str | int, ...]
Problems = Iterator[tuple[Loc, str]]
Tree = CommentedMap

# The torch minors that have a wheel on PyPI for at least one platform, by CPython minor.
TORCHES = {
    "3.8": "<=2.4",
    "3.9": "<=2.8",
    "3.10": ">=1.11,<=2.14",
    "3.11": ">=1.13",
    "3.12": ">=2.2",
    "3.13": ">=2.5",
    "3.14": ">=2.9",
    "3.15": ">=2.15",
}


def contradictions(matrix: Matrix) -> Problems:
    """Finds values that are repeated, contradict each other, or contradict PyPI or conda-forge."""
    yield from _toolkits(matrix)
    for name, kernels in matrix.kernels.items():
        yield from _kernels(name, kernels, matrix)
    yield from _stable(matrix)
    for minor, torch in matrix.torch.items():
        yield from _torch(minor, torch, matrix)


def _toolkits(matrix: Matrix) -> Problems:
    used = {kernels.toolkit for kernels in matrix.kernels.values()}
    able = [name for name, toolkit in matrix.toolkits.items() if toolkit.nvcc]
    for version, toolkit in matrix.toolkits.items():
        where: Loc = ("toolkits", version, "clang")
        if toolkit.nvcc and toolkit.clang:
            yield where, f"CUDA {version}: `nvcc: true` and `clang` exclude each other; remove one"
        if version in used and toolkit.clang and toolkit.clang.fatbinary not in able:
            yield (
                (*where, "fatbinary"),
                f"CUDA {toolkit.clang.fatbinary} has no fatbinary on PyPI; "
                f"name one of: {', '.join(able)}",
            )


def _kernels(name: str, kernels: Kernels, matrix: Matrix) -> Problems:
    where: Loc = ("kernels", name)
    toolkit = matrix.toolkits.get(kernels.toolkit or "")
    if name == "cpu":
        if kernels.toolkit or kernels.archs:
            yield where, "CPU kernels take neither `toolkit` nor `archs`"
    elif kernels.toolkit is None or not kernels.archs:
        yield where, "CUDA kernels need `toolkit` and `archs`"
    elif toolkit is None:
        yield (
            (*where, "toolkit"),
            f"toolkit {kernels.toolkit} has no entry under `toolkits`; "
            f"there are {', '.join(matrix.toolkits)}",
        )
    elif name != f"cuda{kernels.cuda_major}":
        yield (
            (*where, "toolkit"),
            f"toolkit {kernels.toolkit} makes kernels named cuda{kernels.cuda_major}, not {name}",
        )
    else:
        yield from _archs(where, kernels, toolkit)


def _archs(where: Loc, kernels: Kernels, toolkit: Toolkit) -> Problems:
    for index, arch in enumerate(kernels.archs):
        number = arch.split("_")[1]
        if int(number.rstrip("af")) not in toolkit.archs:
            yield (
                (*where, "archs", index),
                f"{arch}: CUDA {kernels.toolkit} has no such architecture; it has {toolkit.archs}",
            )
        if arch in kernels.archs[:index]:
            yield (*where, "archs", index), f"{arch} is listed twice"


def _stable(matrix: Matrix) -> Problems:
    where: Loc = ("stable", "built_with")
    stable = matrix.stable
    compiled_with: dict[Loc, str] = {where: stable.built_with}
    if stable.headers:
        compiled_with["stable", "headers"] = stable.headers
    minors: dict[Loc, str] = {
        ("package", "default_torch"): matrix.package.default_torch,
        ("stable", "target"): stable.target,
        **compiled_with,
    }
    for loc, minor in minors.items():
        if minor not in matrix.torch:
            entries = ", ".join(matrix.minors())
            yield loc, f"torch {minor} has no entry under `torch`; there are {entries}"
    for loc, minor in compiled_with.items():
        if Version(minor) < Version(stable.target):
            yield (
                loc,
                f"the headers of torch {minor} cannot target torch {stable.target}; "
                f"name torch {stable.target} or newer",
            )
    torch = matrix.torch.get(stable.built_with)
    yield from _devices(("stable", "devices"), stable.devices, matrix)
    yield from _compilers(where, stable.devices, torch, matrix)


def _torch(minor: str, torch: Torch, matrix: Matrix) -> Problems:
    where: Loc = ("torch", minor)
    if not torch.release.startswith(minor + "."):
        yield (*where, "release"), f"{torch.release} is not a release of torch {minor}"
    yield from _pythons(minor, torch, matrix)
    abi1 = Version(facts_of(matrix.platform).first_abi1)
    if torch.abi.pypi != int(Version(minor) >= abi1):
        yield (
            (*where, "abi"),
            f"PyPI's torch {minor} is built with C++11 ABI {1 - torch.abi.pypi}, "
            f"got {torch.abi.pypi}",
        )
    if torch.abi.conda != 1:
        yield (
            (*where, "abi"),
            f"conda-forge builds every torch with C++11 ABI 1, got {torch.abi.conda}",
        )
    lowest_gcc = torch.gcc[0]
    if torch.cxx == 20 and lowest_gcc < 10:
        yield (*where, "gcc"), f"C++20 needs g++ 10 or newer, got a lower bound of {lowest_gcc}"
    yield from _devices((*where, "aten"), torch.aten, matrix)
    yield from _compilers((*where, "gcc"), torch.aten, torch, matrix)


def _pythons(minor: str, torch: Torch, matrix: Matrix) -> Problems:
    """Finds Pythons that the package does not serve, or that torch has no wheel for."""
    where: Loc = ("torch", minor, "pythons")
    pythons = matrix.package.pythons
    for index, python in enumerate(torch.pythons):
        torches = TORCHES.get(python, "")
        if python not in pythons:
            yield (*where, index), f"Python {python} is not in package.pythons ({pythons})"
        elif minor not in SpecifierSet(torches):
            yield (
                (*where, index),
                f"torch {minor} has no wheel for Python {python}; torch {torches} has one",
            )


def _devices(where: Loc, devices: Sequence[str], matrix: Matrix) -> Problems:
    """Finds devices that are repeated or have no kernels."""
    for index, device in enumerate(devices):
        if device in devices[:index]:
            yield (*where, index), f"two equal cells: {device} is listed twice"
        # A project without kernels may list `cpu`, since its glue computes alone or with torch.
        has_objects = any(kernels.has_object for kernels in matrix.kernels.values())
        if device == "cpu" and has_objects and "cpu" not in matrix.kernels:
            able = ", ".join(name.replace("cuda", "cu") for name in matrix.kernels)
            yield (*where, index), f"cpu has no entry under `kernels`; those have: {able}"


def _compilers(where: Loc, devices: Sequence[str], torch: Torch | None, matrix: Matrix) -> Problems:
    """Finds toolkits that share no g++ with torch."""
    for device in devices:
        kernels = _kernels_for(device, matrix)
        toolkit = matrix.toolkits.get(kernels.toolkit or "") if kernels else None
        if kernels is None or toolkit is None or torch is None:
            continue
        low, high = toolkit.gcc
        if torch.gcc[0] > high or torch.gcc[1] < low:
            yield (
                where,
                f"no g++ in {list(torch.gcc)} is accepted by CUDA {kernels.toolkit}, "
                f"which takes {[low, high]}",
            )


def _kernels_for(device: str, matrix: Matrix) -> Kernels | None:
    return matrix.kernels.get(device.replace("cu", "cuda"))


def load_settings(platform: str | None = None, repo: Path | None = None) -> Settings:
    """The settings of a run for `platform`: by default what PLATFORM_VARIABLE names, or else this
    machine's. `repo` is the project's folder, by default that of `find_root`.
    """
    repo = find_root(repo)
    platform = platform or os.environ.get(PLATFORM_VARIABLE) or native_platform()
    return make_settings(load(repo / MATRIX_NAME, platform), repo)


def load(path: Path, platform: str = FIRST) -> Matrix:
    """The checked matrix in the file at `path`, for a platform.

    What names an entry that is not there any more does nothing; `leftovers` says where that is.
    Raises ReleaseError, with a line for each mistake.
    """
    tree = _read(path)
    values = copy.deepcopy(tree)
    for loc in _leftovers(tree):
        _remove(values, loc)
    problems: list[str] = []
    matrices: dict[str, Matrix] = {}
    name = FIRST
    try:
        first = Matrix.model_validate(values)
        for name in first.platforms:
            matrices[name] = first.on(name)
            for loc, problem in contradictions(matrices[name]):
                problems.append(f"{path}:{_line(tree, name, loc)}: {problem}")
    except ValidationError as error:
        problems += [f"{path}:{_schema_problem(tree, name, detail)}" for detail in error.errors()]
    if problems:
        raise ReleaseError("\n".join(dict.fromkeys(problems)))
    if platform not in matrices:
        raise ReleaseError(
            f"{path}: has no platform {platform}; there are {', '.join(matrices)}; "
            "name one of them, or add the platform"
        )
    return matrices[platform]


def leftovers(path: Path) -> list[str]:
    """What names an entry that the matrix does not have, and so does nothing; with lines.

    An entry of `torch` or `kernels` may be deleted alone: what a platform has of it, and the
    devices whose kernels it was, go with it.
    """
    tree = _read(path)
    return [
        f"{path}:{_line(tree, FIRST, loc)}: `{'.'.join(map(str, loc[:-1]))}` names "
        f"{_name(tree, loc)}, which has no entry, so it does nothing; delete it, or add the entry"
        for loc in _leftovers(tree)
    ]


def _name(tree: Tree, loc: Loc) -> str:
    """What stands at a place: an item of a list, or else the key."""
    last = loc[-1]
    return str(reduce(getitem, loc, tree)) if isinstance(last, int) else str(last)


def _leftovers(tree: Tree) -> list[Loc]:
    """The places of values that belong to no entry, the last one of a list first."""
    found: list[Loc] = []
    kernels = _mapping(tree, "kernels")
    for platform in _mapping(tree, "platforms"):
        for kind in ("kernels", "torch"):
            where: Loc = ("platforms", platform, "differs", kind)
            for name, value in _mapping(tree, *where).items():
                # A torch of one platform alone is whole there.
                is_whole = isinstance(value, dict) and "release" in value
                if name not in _mapping(tree, kind) and not is_whole:
                    found.append((*where, name))
    bases: list[Loc] = [(), *(("platforms", p, "differs") for p in _mapping(tree, "platforms"))]
    for base in bases:
        lists: list[Loc] = [(*base, "stable", "devices")]
        lists += [(*base, "torch", minor, "aten") for minor in _mapping(tree, *base, "torch")]
        for place in lists:
            devices = _at(tree, place)
            listed = list(enumerate(devices)) if isinstance(devices, list) else []
            for index, device in reversed(listed):
                is_cuda = re.fullmatch(r"cu\d+", str(device))
                if is_cuda and str(device).replace("cu", "cuda") not in kernels:
                    found.append((*place, index))
    return found


def _at(tree: Tree, loc: Loc) -> object:
    try:
        return reduce(getitem, loc, tree)
    except (LookupError, TypeError):
        return None


def _is_there(tree: Tree, loc: Loc) -> bool:
    parent = _at(tree, loc[:-1])
    last = loc[-1]
    if isinstance(parent, dict):
        return last in parent
    return isinstance(parent, list) and isinstance(last, int) and last < len(parent)


def _mapping(tree: Tree, *loc: str | int) -> dict[str, object]:
    """The mapping at a place; an empty one if there is none."""
    value = _at(tree, loc)
    return value if isinstance(value, dict) else {}


def _remove(tree: Tree, loc: Loc) -> None:
    """Removes a value; one within a value that is gone is gone, too."""
    parent = _at(tree, loc[:-1])
    last = loc[-1]
    if isinstance(parent, dict):
        parent.pop(last, None)
    elif isinstance(parent, list) and isinstance(last, int) and last < len(parent):
        del parent[last]


def _read(path: Path) -> Tree:
    """The tree of the YAML file at `path`; its mappings and lists know their lines."""
    try:
        tree = YAML(typ="rt").load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ReleaseError(f"{path}: cannot be read ({error.strerror}); restore it") from error
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        problem = (error.problem or "unreadable").splitlines()[0].split(" with value")[0]
        raise ReleaseError(f"{path}:{line}: not valid YAML: {problem}; correct the line") from error
    if not isinstance(tree, CommentedMap):
        raise ReleaseError(
            f"{path}:1: got {str(tree)[:40]!r}, needs a mapping with `schema: 1`; write one"
        )
    return tree


def _place(tree: Tree, platform: str, loc: Loc) -> Loc:
    """The path of a platform's value in the file: `loc`, below `differs` if the value is there."""
    differs: Loc = ("platforms", platform, "differs", *loc)
    # What lacks a key is where most of its path is.
    own = sum(_is_there(tree, differs[:end]) for end in range(4, len(differs) + 1))
    of_all = sum(_is_there(tree, loc[:end]) for end in range(1, len(loc) + 1))
    return differs if own and (own >= min(len(loc), 3) or own > of_all) else loc


def _line(tree: Tree, platform: str, loc: Loc) -> int:
    """The line of a platform's value, or of the nearest parent if the file lacks the value."""
    line = 1
    node = tree
    with suppress(LookupError, TypeError, AttributeError):  # only mappings and lists have lines
        for part in _place(tree, platform, loc):
            position = node.lc.key(part) if isinstance(node, dict) else node.lc.item(part)
            line = position[0] + 1
            node = node[part]
    return line


def _schema_problem(tree: Tree, platform: str, detail: ErrorDetails) -> str:
    """The text `line: problem; remedy` for an error of pydantic."""
    loc = _place(tree, platform, tuple(part for part in detail["loc"] if part != "[key]"))
    line = _line(tree, platform, detail["loc"])
    name = ".".join(map(str, loc))
    kind = detail["type"]
    if kind == "extra_forbidden":
        remedy = _did_you_mean(str(loc[-1]), _keys_of_schema()) or "remove it"
        return f"{line}: unknown key `{name}`; {remedy}"
    if kind == "missing":
        return f"{line}: `{name}` is missing; add it"
    value = detail["input"]
    needs = detail["msg"].removeprefix("Value error, ").replace("Input should be", "needs")
    choices = re.findall(r"'([^']+)'", needs) if kind == "literal_error" else []
    remedy = _did_you_mean(str(value), choices) or "correct it"
    if isinstance(value, float) and kind == "string_type":
        remedy = 'write versions in quotes ("2.10" is not the number 2.1)'
    return f"{line}: `{name}`: got {value!r}, {needs}; {remedy}"


def _keys_of_schema() -> list[str]:
    """The keys of all mappings in the matrix."""
    schema = Matrix.model_json_schema(by_alias=True)
    nodes = (schema, *schema["$defs"].values())
    return sorted({key for node in nodes for key in node.get("properties", ())})


def _did_you_mean(word: str, choices: Sequence[str]) -> str:
    """A question with the choices that look like the word; "" if none does."""
    near = difflib.get_close_matches(word, choices, n=2)
    return f"did you mean {' or '.join(near)}?" if near else ""
