"""Probe: the distribution that owns a file, and the torch that the distribution names."""

import operator
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from urllib.parse import unquote

from .records import BinaryRecord, Owner, parse_minor, parse_version
from .text import printable, read_json

_PAIRS = Path(__file__).with_name("pairs.json")
_MAX_FILE = 8 << 20
_LIBRARY = re.compile(rb'^"?([^,"\n]+\.(?:so(?:\.[0-9.]+)?|pyd|dll|dylib))"?,', re.MULTILINE)
_SHARED_OBJECT = re.compile(r"\.(so|dylib|pyd|dll)(\.[0-9.]+)?$")
_BUILD_FILES = ("*version*.py", "cpp_lib.json")
Minor = tuple[int, int]
#: More minors of torch 1 and 2 than there will be; (0, 0) stands for older torch, (9, 0) for newer.
_MINORS = [(0, 0), *((major, minor) for major in (1, 2) for minor in range(100)), (9, 0)]
_SIGNS = {
    ">=": operator.ge, "<=": operator.le, "==": operator.eq, "!=": operator.ne,
    "~=": operator.eq, ">": operator.ge, "<": operator.lt,
}  # fmt: skip


def find_owner(path: Path) -> Owner | None:
    """The distribution whose RECORD or conda metadata lists the file; None if none lists it.

    A distribution that is installed from a source folder ("editable") owns the objects that
    `_built_in` finds in the folder.
    """
    with suppress(OSError, RuntimeError):
        path = Path(os.path.normpath(path.absolute()))
        names = [(folder, path.relative_to(folder).as_posix()) for folder in path.parents]
        names += [(Path(site), str(path)) for site in sys.path if site]
        found = [(place, f) for f, name in names if (place := _index(f).get(name)) is not None]
        by = found[0][0] / "INSTALLER" if found else path
        if by.name == "INSTALLER" and by.is_file() and by.read_bytes().strip() == b"conda":
            found = [pair for pair in found if pair[0].suffix == ".json"] or found
        return _read(*found[0]) if found else None
    return None


def built_for(binary: BinaryRecord) -> tuple[tuple[Minor, str], ...]:
    """The torch minors that the file's path or owner names, each with its source in words."""
    return (*_named_in(binary.path), *(binary.owner.built_for if binary.owner else ()))


def distributions(folder: Path) -> Mapping[Path, list[Path]]:
    """The shared objects of every distribution in a folder, by the place of its metadata."""
    found: dict[Path, list[Path]] = {}
    for inner, place in _index(folder).items():
        found.setdefault(place, []).append(folder / inner)
    return found


def shared_objects(folder: Path) -> list[Path]:
    """The files under a folder that are named like shared objects."""
    return sorted(p for p in folder.rglob("*") if _SHARED_OBJECT.search(p.name) and p.is_file())


@cache
def _index(folder: Path) -> Mapping[str, Path]:
    """Maps a shared object's path in the folder (absolute if editable) to its owner's metadata."""
    found: dict[str, Path] = {}
    for place in folder.glob("*.dist-info"):
        with suppress(OSError):
            for name in _LIBRARY.findall((place / "RECORD").read_bytes()):
                found[name.decode("utf-8", "replace")] = place
        url = read_json(place / "direct_url.json")
        with suppress(OSError, ValueError, AttributeError):
            if url.get("dir_info", {}).get("editable"):
                source = Path(unquote(url["url"].removeprefix("file://")))
                found |= dict.fromkeys(map(str, _built_in(source)), place)
    for link in folder.glob("*.egg-link"):  # made by `setup.py develop`
        with suppress(OSError):
            source = Path(link.read_text("utf-8").partition("\n")[0])
            for place in source.glob(f"{link.stem.replace('-', '_')}*.egg-info"):
                found |= dict.fromkeys(map(str, _built_in(source)), place)
    for place in folder.glob("conda-meta/*.json"):
        names = read_json(place).get("files", ())
        found |= dict.fromkeys((name for name in names if ".so" in name), place)
    return found


def _built_in(source: Path) -> Iterator[Path]:
    """A source folder's shared objects, except in build, dist, hidden and environment folders."""
    for place, folders, files in os.walk(source):
        if "pyvenv.cfg" in files or "conda-meta" in folders:
            folders.clear()
            continue
        folders[:] = [name for name in folders if name not in ("build", "dist") and name[0] != "."]
        yield from (Path(place, name) for name in files if _SHARED_OBJECT.search(name))


@cache
def _read(place: Path, folder: Path) -> Owner | None:
    """The distribution of the metadata at `place`, with files in `folder`; None if unreadable."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        if place.suffix == ".json":
            data = read_json(place)
            name, version, needs = data["name"], data["version"], data.get("depends", ())
            pins = [n.partition(" ")[2] for n in needs if n.startswith(("pytorch ", "libtorch "))]
            channel = "conda"
        else:
            text = _metadata(place)
            name, version = (re.findall(rf"^{k}: (.*)", text, re.M)[0] for k in ("Name", "Version"))
            pins = torch_requirements(place)
            channel = "pip"
        files = [folder / inner for inner, owner in _index(folder).items() if owner == place]
        # Only a pin to one minor counts, like `(==2.9.1)`, `<2.10,>=2.9` or conda's `2.9.* cuda*`.
        admitted = [(pin, [minor for minor in _MINORS if admits(pin, minor)]) for pin in pins]
        said = [(m[0], f"its metadata ({pin.strip()})") for pin, m in admitted if len(m) == 1]
        known = _pairs().get(normal(name), {})
        said += [
            (minor, f"the list of releases ({name} {version})")
            for minor, releases in known.items()
            if any(f"{version}.".startswith(f"{release}.") for release in releases.split())
        ]
        said += _named_by_files({file.parent for file in files})
        libraries = {file.name: file for file in files}
        return Owner(
            name=printable(name),
            version=printable(version),
            libraries=libraries,
            built_for=tuple(said),
            release_for=known,
            channel=channel,
        )
    return None


def _metadata(place: Path) -> str:
    name = "PKG-INFO" if place.suffix == ".egg-info" else "METADATA"
    with (place / name).open("rb") as file:
        return file.read(_MAX_FILE).decode("utf-8", "replace").partition("\n\n")[0]


def torch_requirements(place: Path) -> list[str]:
    """The requirements on torch, such as `>=2.9`, in a metadata folder, without those of extras."""
    wanted = r"^Requires-Dist: torch(?![\w.-]) *([^;\n]*)(?!.*extra)"
    return re.findall(wanted, _metadata(place), re.M)


def admits(pin: str, minor: Minor) -> bool:
    """Whether a requirement such as `>=2.9,<2.11` admits a minor of torch."""
    pin = re.sub(r"^[\s(]*(?=\d)", "==", pin)  # conda's `2.9.* cuda*`
    for sign, text in re.findall(r"(>=|<=|==|!=|~=|>|<)\s*([\d.]+)", pin):
        version = parse_version(text) or ()
        bound = version[:2]
        sign = ">=" if sign == "~=" and len(version) < 3 else sign  # ~=2.9 admits 2.10
        if sign == "<" and any(version[2:]):
            bound = (bound[0], bound[1] + 1)  # <2.9.1 admits 2.9.0
        if not (sign == "!=" and len(version) > 2) and not _SIGNS[sign](minor, bound):
            return False
    return True


def _named_in(path: Path) -> Iterator[tuple[Minor, str]]:
    """The torch minor that a path names, as `libx_torch29-cpu.so` and `torch-2.9/lib/x.so` do."""
    found = re.search(r"torch[_-]?(\d)[._]?(\d{1,2})(?!\d)", path.name)
    places = [(found, f"its name {printable(path.name)}")]
    for folder in path.parts[-3:-1]:
        found = re.fullmatch(r"(?:py)?torch[_-]?(\d)\.(\d+)[\w.+]*", folder)
        places.append((found, f"its folder {printable(folder)}"))
    yield from [((int(found[1]), int(found[2])), why) for found, why in places if found][:1]


def _named_by_files(folders: set[Path]) -> Iterator[tuple[Minor, str]]:
    """The torch minors that a `*version*.py` or a `cpp_lib.json` beside the binaries names."""
    version = re.compile(r"""\b(?:py)?torch(?:_version)?["']?\s*[:=]\s*["'](\d+\.\d+)""")
    for file in (f for d in folders for name in _BUILD_FILES for f in d.glob(name)):
        with suppress(OSError):
            found = version.search(file.read_bytes()[: 1 << 16].decode("utf-8", "replace"))
            if minor := parse_minor(found[1]) if found else None:
                yield minor, f"its {printable(file.name)}"


def normal(name: str) -> str:
    """The normalized name of a distribution (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def _pairs() -> Mapping[str, Mapping[Minor, str]]:
    """The releases of each distribution that go with each torch minor, the best one first."""
    rows = read_json(_PAIRS).get("releases", {})
    return {n: {parse_minor(key) or (0, 0): row[key] for key in row} for n, row in rows.items()}
