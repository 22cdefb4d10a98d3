"""`torch-doctor build`: is this machine ready to compile an extension for the installed torch?

It looks at what commonly breaks such a build after minutes: nvcc, the host compiler, the C++
standard that torch's headers want, ninja, memory, pip's build isolation, and the GPU
architectures. It runs `nvcc` and the compiler, asks them for their versions and lets the
compiler read a few lines; it compiles nothing of the project in the current folder.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from ...judge import fixes
from ...judge.fixes.installers import Pip
from ...judge.project import Record
from ...judge.reading.fatbin import GENERATIONS
from ...judge.records import (
    NO_FIX,
    NOTE,
    OK,
    REJECTED,
    UNKNOWN,
    Finding,
    Fix,
    Runtime,
    TorchInstall,
    dotted,
    parse_version,
)
from ...judge.rules.cuda import runs_on
from ...judge.target import Target
from ...judge.text import list_names, printable, quoted, read_regular, some
from ...judge.words import codes, faults, render

_SECONDS_OF_PROGRAM = 30
_MAX_OUTPUT = 1 << 20
_MAX_SOURCE = 1 << 20
#: One nvcc takes up to 4 GB for a file with torch's headers, a host compiler 2 GB.
_BYTES_OF_NVCC = 4 << 30
_BYTES_OF_COMPILER = 2 << 30
_OLDEST_GCC = (9,)
#: What a compiler must read for each C++ standard that torch's headers may want.
_PROGRAM_OF_STANDARD = {
    17: "#include <optional>\nint main() { if constexpr (true) return 0; }\n",
    20: "#include <concepts>\ntemplate <std::integral T> T f(T t) { return t; }\n",
}
_STANDARD_OPTION = re.compile(r"-std=(?:c|gnu)\+\+(\d\d)")
_MARKS = {OK: "ok", NOTE: "note", REJECTED: "NO", UNKNOWN: "?"}


class Machine(Record, kw_only=True):
    """Where the checks look."""

    env: Mapping[str, str]
    folder: Path  #: of the project that is to be built
    processors: int
    meminfo: Path = Path("/proc/meminfo")
    cgroup: Path = Path("/sys/fs/cgroup")
    system_home: Path = Path("/usr/local/cuda")
    sites: tuple[Path, ...] = ()  #: the folders in which PyPI's CUDA toolkits may be


class Toolkit(Record, kw_only=True):
    """A CUDA toolkit with nvcc."""

    home: Path
    version: tuple[int, int]


def main(runtime: Runtime, *, as_json: bool) -> int:
    """Check the build for the current folder; returns 1 if something will break it, else 0."""
    findings = check_build(runtime, _this_machine(Path.cwd(), runtime.target))
    prefix = runtime.target.prefix
    failed = any(finding.status == REJECTED for finding in findings)
    if as_json:
        render.print_json(prefix, findings=findings, ready=not failed)
        return int(failed)
    rows = [
        (f.dimension, _MARKS[f.status], f.code or "", f.why or f"{f.observed} ({f.needed})")
        for f in findings
    ]
    print(render.table(("to compile", "", "code", "what was found"), rows, prefix))
    for finding in findings:
        if finding.fix:
            print(f"\nto fix {finding.dimension}: {render.shorten_fix(finding.fix, prefix)}")
    ending = "nothing was found that breaks a build"
    if failed:
        ending = "the build would fail"
    elif any(finding.status == NOTE for finding in findings):
        ending = "no fault was found; what a note says breaks some builds and not others"
    print(f"\n{ending}")
    return int(failed)


def _this_machine(folder: Path, target: Target) -> Machine:
    return Machine(
        env=os.environ,
        folder=folder,
        processors=_processors(),
        sites=tuple(map(Path, target.search_path())),
    )


def _processors() -> int:
    """The processors that ninja counts: those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_build(runtime: Runtime, machine: Machine) -> list[Finding]:
    """The findings, in the order in which a build would meet their causes."""
    torch = runtime.torch
    if torch is None:
        return [_no_torch(runtime)]
    toolkits = list(_toolkits(machine))
    chosen = toolkits[0] if toolkits else None
    findings = [
        _check_isolation(machine, runtime),
        _check_compiler(machine, chosen if torch.cuda else None),
        *_check_standard(machine, torch),
        _check_ninja(machine, runtime),
    ]
    if torch.cuda:
        findings.append(_check_nvcc(torch, toolkits))
        findings.append(_check_architectures(machine, runtime, chosen))
    findings.append(_check_memory(machine, has_nvcc=bool(torch.cuda and chosen)))
    return [finding for finding in findings if finding is not None]


def _no_torch(runtime: Runtime) -> Finding:
    return Finding(
        dimension="torch",
        status=REJECTED,
        code=codes.TORCH_MISSING,
        observed=runtime.torch_problem or "not installed",
        needed="an installed torch",
        why="an extension is compiled against an installed torch, and there is none",
        fix=fixes.install_torch(runtime.environment, runtime.project),
        fault=faults.TORCH_NOT_LOADED,
    )


def _output_of(command: list[str], content: str = "") -> tuple[int, str]:
    """Exit code and output of a program; -1 if it does not run or takes too long.

    `content` is its standard input, of at most 4 KiB, which each pipe holds.
    """
    with suppress(OSError, subprocess.SubprocessError, ValueError):
        # Written before the program starts: a later write to one that does not read raises
        # SIGPIPE, which ends a process whose host has set that signal to its default.
        read_end, write_end = os.pipe()
        os.write(write_end, content.encode())
        os.close(write_end)
        with os.fdopen(read_end) as standard_input:
            run = subprocess.run(
                command,
                stdin=standard_input,
                capture_output=True,
                timeout=_SECONDS_OF_PROGRAM,
                text=True,
                errors="replace",
            )
        return run.returncode, (run.stdout + run.stderr)[:_MAX_OUTPUT]
    return -1, ""


def _which(machine: Machine, program: str) -> str | None:
    return shutil.which(program, path=machine.env.get("PATH"))


def set_variables(values: Mapping[str, str], words: str = "{command}") -> Fix:
    """Set variables for the build, in the shell that will run it."""
    settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in values.items())
    return fixes.command_in_words(fixes.Kind.SET_VARIABLE, words, f"export {settings}")


# nvcc


def _toolkits(machine: Machine) -> Iterator[Toolkit]:
    """The toolkits with nvcc: first the one that torch's build takes, then the others here."""
    homes = [
        Path(machine.env[name]) for name in ("CUDA_HOME", "CUDA_PATH") if machine.env.get(name)
    ]
    on_path = _which(machine, "nvcc")
    if on_path is not None:
        homes.append(Path(on_path).resolve().parents[1])
    homes.append(machine.system_home)
    start = f"{machine.system_home.name}-"
    others = (name for name in list_names(machine.system_home.parent) if name.startswith(start))
    homes += [machine.system_home.parent / name for name in reversed([*others])]
    for site in machine.sites:
        homes += sorted(site.glob("nvidia/cu[0-9]*"), reverse=True)
    seen: set[Path] = set()
    for home in homes:
        nvcc = home / "bin" / "nvcc"
        if not nvcc.is_file() or nvcc.resolve() in seen:
            continue
        seen.add(nvcc.resolve())
        _, banner = _output_of([str(nvcc), "--version"])
        release = re.search(r"release (\d{1,3})\.(\d{1,3})", banner)
        if release:
            yield Toolkit(home=home, version=(int(release[1]), int(release[2])))


def _check_nvcc(torch: TorchInstall, toolkits: list[Toolkit]) -> Finding:
    expected = parse_version(torch.cuda) or ()
    requirement = f"nvcc of CUDA {torch.cuda}"
    if not toolkits:
        return Finding(
            dimension="nvcc",
            status=REJECTED,
            code=codes.NO_TOOLKIT,
            observed="none in CUDA_HOME, CUDA_PATH, PATH and /usr/local/cuda",
            needed=requirement,
            why="there is no nvcc: CUDA_HOME names no toolkit, and PATH has none",
            fix=fixes.in_words(f"install the CUDA toolkit {torch.cuda}, and set CUDA_HOME to it"),
            fault=faults.TOOLCHAIN,
        )
    chosen = toolkits[0]
    observed = f"CUDA {dotted(chosen.version)} in {printable(chosen.home)}"
    if chosen.version == expected[:2]:
        return Finding(dimension="nvcc", status=OK, observed=observed, needed=requirement)
    is_same_major = chosen.version[0] == expected[0]
    fitting = [toolkit for toolkit in toolkits if toolkit.version[0] == expected[0]]
    exact = [toolkit for toolkit in fitting if toolkit.version == expected[:2]]
    better = next(iter(exact or ([] if is_same_major else fitting)), None)
    fix = fixes.in_words(f"install the CUDA toolkit {torch.cuda}, and set CUDA_HOME to it")
    if better is not None:
        fix = set_variables({"CUDA_HOME": str(better.home)})
    consequence = "which torch's build only warns of" if is_same_major else "which torch refuses"
    return Finding(
        dimension="nvcc",
        status=NOTE if is_same_major else REJECTED,
        code=codes.NVCC_MISMATCH,
        observed=observed,
        needed=requirement,
        why=(
            f"nvcc is of CUDA {dotted(chosen.version)} and torch of CUDA {torch.cuda}, "
            f"{consequence}"
        ),
        fix=fix,
        fault=faults.NVCC_MISMATCH,
    )


# The host compiler and its C++ standard


def _compiler(machine: Machine) -> list[str]:
    """The words that start the C++ compiler; empty if there is none."""
    try:
        named = shlex.split(machine.env.get("CXX", ""))
    except ValueError:
        named = []
    candidates = [named] if machine.env.get("CXX") else [["g++"], ["c++"], ["clang++"]]
    return next((words for words in candidates if words and _which(machine, words[0])), [])


def _gcc_version(words: list[str]) -> tuple[int, ...]:
    """The version of a GCC; () for another compiler, or one that does not run."""
    code, banner = _output_of([*words, "--version"])
    first_line = banner.partition("\n")[0]
    if code or "clang" in first_line:
        return ()
    numbers = re.findall(r"\b\d+\.\d+(?:\.\d+)?\b", first_line)
    return parse_version(numbers[-1] if numbers else None) or ()


def _newest_for(toolkit: Toolkit) -> int | None:
    """The newest major of GCC that nvcc's own header accepts; None if it does not tell."""
    for folder in ("include", "targets/x86_64-linux/include", "targets/sbsa-linux/include"):
        with suppress(OSError):
            header = read_regular(toolkit.home / folder / "crt" / "host_config.h", _MAX_SOURCE)
            bound = re.search(rb"#if __GNUC__ > (\d{1,3})", header)
            if bound:
                return int(bound[1])
    return None


def _other_compiler(machine: Machine, accepts: Callable[[str], bool]) -> Fix:
    """Name an installed g++ of another version that fits, else what to install."""
    folders = filter(None, machine.env.get("PATH", "").split(":"))
    names = {name for folder in folders for name in list_names(Path(folder))}
    versioned = [name for name in names if re.fullmatch(r"g\+\+-\d{1,3}", name)]
    for name in sorted(versioned, key=lambda name: -int(name[4:])):
        if accepts(name):
            return set_variables({"CC": name.replace("g++", "gcc"), "CXX": name})
    return NO_FIX


def _check_compiler(machine: Machine, toolkit: Toolkit | None) -> Finding:
    newest = _newest_for(toolkit) if toolkit else None
    bound = (
        f", at most GCC {newest} for nvcc {dotted(toolkit.version)}" if toolkit and newest else ""
    )
    requirement = f"GCC {dotted(_OLDEST_GCC)} or newer{bound}"

    def is_accepted(name: str) -> bool:
        version = _gcc_version([name if "/" in name else _which(machine, name) or name])
        return version >= _OLDEST_GCC and (newest is None or version[0] <= newest)

    def refuse(observed: str, why: str) -> Finding:
        install = fixes.in_words(f"install {requirement}, and set CC and CXX to it")
        return Finding(
            dimension="host compiler",
            status=REJECTED,
            code=codes.HOST_COMPILER,
            observed=observed,
            needed=requirement,
            why=why,
            fix=_other_compiler(machine, is_accepted) or install,
            fault=faults.TOOLCHAIN,
        )

    words = _compiler(machine)
    if not words:
        named = machine.env.get("CXX")
        where = f"CXX={printable(named)}" if named else "g++, c++ and clang++ on PATH"
        return refuse("none", f"there is no C++ compiler: looked for {where}")
    program = [_which(machine, words[0]) or words[0], *words[1:]]
    version = _gcc_version(program)
    label = printable(shlex.join(words))
    if not version:
        return Finding(
            dimension="host compiler",
            status=NOTE,
            code=codes.HOST_COMPILER,
            observed=label,
            needed=requirement,
            why=f"{label} is not GCC, so it was not compared with nvcc",
        )
    observed = f"{label} {dotted(version)}"
    if newest is not None and version[0] > newest:
        assert toolkit is not None
        return refuse(
            observed,
            f"nvcc {dotted(toolkit.version)} refuses {observed}: it accepts GCC {newest} at most",
        )
    if version < _OLDEST_GCC:
        return refuse(observed, f"torch refuses {observed}")
    return Finding(dimension="host compiler", status=OK, observed=observed, needed=requirement)


def standard_of(torch: TorchInstall) -> int:
    """The C++ standard that torch's headers insist on, as they say it themselves."""
    for inner in ("ATen/ATen.h", "torch/csrc/api/include/torch/all.h"):
        with suppress(OSError):
            header = read_regular(torch.include_dir / inner, _MAX_SOURCE)
            named = re.search(rb"#error C\+\+(\d\d) or later", header)
            if named:
                return int(named[1])
    return 20 if torch.version_tuple >= (2, 14) else 17


def _check_standard(machine: Machine, torch: TorchInstall) -> Iterator[Finding]:
    standard = standard_of(torch)
    requirement = f"C++{standard}, for the headers of torch {torch.version}"
    words = _compiler(machine)
    program = _PROGRAM_OF_STANDARD.get(standard)

    def reads_it(name: str) -> bool:
        found = _which(machine, name) or name
        options = [f"-std=c++{standard}", "-fsyntax-only", "-x", "c++", "-"]
        return _output_of([found, *words[1:], *options], program or "")[0] == 0

    if words and program is not None and not reads_it(words[0]):
        install = fixes.in_words(f"install a compiler with C++{standard}, and set CC and CXX to it")
        yield Finding(
            dimension="C++ standard",
            status=REJECTED,
            code=codes.CXX_STANDARD,
            observed=f"{printable(words[0])} does not compile C++{standard}",
            needed=requirement,
            why=f"torch's headers want C++{standard}, which {printable(words[0])} does not compile",
            fix=_other_compiler(machine, reads_it) or install,
            fault=faults.TOOLCHAIN,
        )
        return
    older = _older_standard(machine.folder, standard)
    if older is None:
        yield Finding(
            dimension="C++ standard", status=OK, observed=f"C++{standard}", needed=requirement
        )
        return
    file, option = older
    replacement = _STANDARD_OPTION.sub(f"-std=c++{standard}", option)
    yield Finding(
        dimension="C++ standard",
        status=REJECTED,
        code=codes.CXX_STANDARD,
        observed=f"{option} in {file}",
        needed=requirement,
        why=f"{file} asks for {option}, and torch's headers want C++{standard} or newer",
        fix=fixes.command_alone(
            fixes.Kind.RAISE_STANDARD, f"sed -i 's/{option}/{replacement}/g' {quoted(file)}"
        ),
        fault=faults.TOOLCHAIN,
    )


def _older_standard(folder: Path, standard: int) -> tuple[str, str] | None:
    """The file of a project that names an older C++ standard, and the option."""
    for file in ("setup.py", "setup.cfg", "pyproject.toml", "CMakeLists.txt"):
        with suppress(OSError):
            content = read_regular(folder / file, _MAX_SOURCE).decode("utf-8", "replace")
            for option in _STANDARD_OPTION.finditer(content):
                if int(option[1]) < standard:
                    return file, option[0]
    return None


# ninja, memory, isolation


def _check_ninja(machine: Machine, runtime: Runtime) -> Finding:
    ninja = _which(machine, "ninja")
    code, version = _output_of([ninja, "--version"]) if ninja else (-1, "")
    if code == 0:
        return Finding(
            dimension="ninja", status=OK, observed=printable(version.strip())[:40], needed="ninja"
        )
    return Finding(
        dimension="ninja",
        status=NOTE,
        code=codes.NO_NINJA,
        observed="no ninja on PATH runs",
        needed="ninja",
        why="without ninja, torch compiles one file at a time, and `load` refuses to compile",
        fix=fixes.install_requirements(runtime.environment, "ninja"),
    )


def _bytes_of_memory(machine: Machine) -> int | None:
    """The memory that is left for a build, within the limit of this container."""
    left: int | None = None
    with suppress(OSError):
        content = read_regular(machine.meminfo, _MAX_SOURCE).decode("ascii", "replace")
        available = re.search(r"MemAvailable:\s+(\d{1,15}) kB", content)
        left = int(available[1]) << 10 if available else None
    with suppress(OSError, ValueError):
        limit = int(read_regular(machine.cgroup / "memory.max", 100))
        used = int(read_regular(machine.cgroup / "memory.current", 100))
        free = max(0, limit - used)
        left = free if left is None else min(left, free)
    return left


def _check_memory(machine: Machine, *, has_nvcc: bool) -> Finding:
    left = _bytes_of_memory(machine)
    each = _BYTES_OF_NVCC if has_nvcc else _BYTES_OF_COMPILER
    named = machine.env.get("MAX_JOBS", "")
    jobs = int(named) if named.isdecimal() and len(named) < 6 else machine.processors + 2
    requirement = f"{each / 2**30:.0f} GB for each job"
    if left is None:
        return Finding(
            dimension="memory",
            status=OK,
            observed="not known",
            needed=requirement,
        )
    observed = f"{left / 2**30:.0f} GB for {jobs} jobs"
    fitting = max(1, left // each)
    if jobs <= fitting:
        return Finding(dimension="memory", status=OK, observed=observed, needed=requirement)
    origin = "as MAX_JOBS says" if named else "as ninja does without MAX_JOBS"
    return Finding(
        dimension="memory",
        status=NOTE,
        code=codes.BUILD_MEMORY,
        observed=observed,
        needed=requirement,
        why=f"{jobs} compilers at a time, {origin}, may need more than {left / 2**30:.0f} GB",
        fix=set_variables({"MAX_JOBS": str(fitting)}),
    )


def _check_isolation(machine: Machine, runtime: Runtime) -> Finding | None:
    """pip builds in an environment of its own, whose torch is another one or none."""
    sources = {}
    for file in ("pyproject.toml", "setup.py"):
        with suppress(OSError):
            content = read_regular(machine.folder / file, _MAX_SOURCE)
            sources[file] = content.decode("utf-8", "replace")
    needs_torch = re.search(r"^\s*(import torch|from torch)\b", sources.get("setup.py", ""), re.M)
    requires = re.search(
        r"^requires\s*=\s*\[(.*?)\]", sources.get("pyproject.toml", ""), re.M | re.DOTALL
    )
    names_torch = requires and re.search(r"""["']torch\b(?![-\w])""", requires[1])
    if not needs_torch and not names_torch:
        return None
    requirement = "a build that sees the installed torch"
    # pip reads this variable as the value of its option: `0`, `no` and `false` forbid isolation.
    if machine.env.get("PIP_NO_BUILD_ISOLATION", "").lower() in ("0", "no", "false", "off"):
        return Finding(
            dimension="build isolation",
            status=OK,
            observed="PIP_NO_BUILD_ISOLATION forbids it",
            needed=requirement,
        )
    inside = "another torch, which its pyproject.toml requires" if names_torch else "no torch"
    return Finding(
        dimension="build isolation",
        status=NOTE,
        code=codes.BUILD_ISOLATION,
        observed=f"pip builds in an environment of its own, with {inside}",
        needed=requirement,
        why=f"pip install builds in an environment of its own, with {inside}",
        fix=fixes.command_alone(
            fixes.Kind.NO_ISOLATION,
            Pip(runtime.environment).install("--no-build-isolation ."),
        ),
        fault=faults.BUILD_ISOLATION,
    )


# GPU architectures


def _check_architectures(
    machine: Machine, runtime: Runtime, toolkit: Toolkit | None
) -> Finding | None:
    if toolkit is None:
        return None
    _, output = _output_of([str(toolkit.home / "bin" / "nvcc"), "--list-gpu-arch"])
    known = sorted({int(number) for number in re.findall(r"compute_(\d{2,3})", output)})
    if not known:
        return None
    listed = machine.env.get("TORCH_CUDA_ARCH_LIST", "")
    requirement = f"architectures that nvcc {dotted(toolkit.version)} compiles for"
    capabilities = sorted({device.capability for device in runtime.devices})
    proposal = _proposal(capabilities, known)
    fix = set_variables({"TORCH_CUDA_ARCH_LIST": proposal})

    def refuse(status: str, observed: str, why: str) -> Finding:
        return Finding(
            dimension="architectures",
            status=status,
            code=codes.UNKNOWN_ARCHITECTURE,
            observed=observed,
            needed=requirement,
            why=why,
            fix=fix,
            fault=faults.UNKNOWN_ARCH,
        )

    unsupported = [c for c in capabilities if c[0] * 10 + c[1] not in known]
    if not listed:
        if unsupported:
            return refuse(
                REJECTED,
                f"a GPU of compute capability {dotted(unsupported[0])}",
                f"nvcc {dotted(toolkit.version)} does not compile for the GPU of compute "
                f"capability {dotted(unsupported[0])}",
            )
        if not capabilities:
            return refuse(
                NOTE,
                "no GPU, and TORCH_CUDA_ARCH_LIST is not set",
                "no GPU is visible here, so torch's build takes all its architectures, or fails",
            )
        return Finding(
            dimension="architectures",
            status=OK,
            observed="those of the GPUs here",
            needed=requirement,
        )
    names, wrong = _parse(listed, known)
    observed = f"TORCH_CUDA_ARCH_LIST={printable(listed)[:200]}"
    if wrong:
        return refuse(
            REJECTED,
            observed,
            f"nvcc {dotted(toolkit.version)} does not know {some(wrong)} of TORCH_CUDA_ARCH_LIST",
        )
    left_out = [c for c in capabilities if runs_on(names, c) is None]
    if left_out:
        return refuse(
            NOTE,
            observed,
            f"TORCH_CUDA_ARCH_LIST leaves out the GPU here (compute capability "
            f"{dotted(left_out[0])})",
        )
    return Finding(dimension="architectures", status=OK, observed=observed, needed=requirement)


def _proposal(capabilities: list[tuple[int, int]], known: list[int]) -> str:
    """A TORCH_CUDA_ARCH_LIST for these GPUs, as far as nvcc goes; PTX serves newer ones."""
    numbers = [10 * major + minor for major, minor in capabilities]
    fitting = [number for number in numbers if number in known]
    older = [number for number in known if numbers and number <= max(numbers)]
    chosen = fitting or (older[-1:] if numbers else [n for n in known if n in (80, 90)])
    chosen = chosen or known[-1:]
    ending = "" if numbers and len(fitting) == len(numbers) else "+PTX"
    return ";".join(f"{number // 10}.{number % 10}" for number in chosen) + ending


def _parse(listed: str, known: list[int]) -> tuple[tuple[str, ...], list[str]]:
    """The architectures in a TORCH_CUDA_ARCH_LIST, and the entries that nvcc does not know."""
    names: list[str] = []
    wrong: list[str] = []
    entries = [entry for entry in re.split(r"[;,\s]+", listed.strip())[:100] if entry]
    for entry in entries:
        for item in GENERATIONS.get(entry.lower(), entry).split(";"):
            parts = re.fullmatch(r"(\d{1,2})\.(\d)([af]?)(\+PTX)?", item)
            if parts is None or int(parts[1] + parts[2]) not in known:
                wrong.append(printable(item)[:40])
                continue
            names.append(f"sm_{parts[1]}{parts[2]}{parts[3]}")
            if parts[4]:
                names.append(f"compute_{parts[1]}{parts[2]}{parts[3]}")
    return tuple(names), wrong
