"""`judge` compares given facts; `judge_file` looks up the facts of a file and calls `judge`."""

import re
from pathlib import Path

from . import checks, torch_probe
from .binary import read_binary
from .elf import ElfError
from .fixes import ours
from .layouts import minors_with
from .records import NOWHERE, UNKNOWN, BinaryRecord, Runtime, TorchInstall, Verdict
from .text import printable


def judge(binary: BinaryRecord, runtime: Runtime) -> Verdict:
    """Compare a binary with a runtime in every dimension that applies.

    The function opens only `symbols.json` and `support.json`. Facts from other files (missing
    symbols, missing libraries) are part of the runtime, which need not describe this process. The
    verdict is `accepted` if no finding is rejected or unknown, since an unknown fact could crash
    the process or falsify a result.
    """
    of_the_file = tuple(checks.host.check_whole_file(binary, runtime))
    verdict = Verdict(binary, of_the_file)
    if verdict.rejection:  # the other dimensions need a whole file of this release
        return verdict
    findings = (check(binary, runtime) for check in checks.ALL)
    return Verdict(binary, (*of_the_file, *filter(None, findings)))


def judge_file(
    binary: BinaryRecord | Path | str, runtime: Runtime, *, light: bool = False
) -> Verdict:
    """Judge a shared object of any package: a file, or the `BinaryRecord` that was read from it.

    Symbols and libraries are looked up only if no cheaper dimension has rejected the object. For an
    object of another package, only the file, platform and package count as cheaper. `light` is
    passed to `read_binary`; if it is set, the libraries of an object of the project are looked up
    only if the object needs libcudart or cuBLAS.
    """
    if not isinstance(binary, BinaryRecord):
        binary = read_binary(binary, light=light)
    if not ours(binary, runtime):
        return _judge_of_others(binary, runtime, ())
    verdict = judge(binary, runtime)
    if verdict.rejection:
        return verdict
    if runtime.torch and runtime.torch.root == NOWHERE:
        return _judge_by_version(binary, runtime)
    key = str(binary.path)
    if binary.kind == "glue" and runtime.torch and key not in runtime.missing:
        try:
            missing = torch_probe.missing_symbols(binary, runtime.torch)
        except (ElfError, OSError) as error:
            return judge(binary, _damaged(runtime, runtime.torch, error))
        runtime = runtime._replace(missing={**runtime.missing, key: missing})
    unsure = any(f.status == UNKNOWN and f.dimension == "libraries" for f in verdict.findings)
    if key not in runtime.libraries and (unsure or not light):
        from . import linking  # not needed by an ordinary import of the package

        libraries = linking.missing_libraries(binary, runtime.torch)
        runtime = runtime._replace(libraries={**runtime.libraries, key: libraries})
    return judge(binary, runtime)


def _judge_of_others(binary: BinaryRecord, runtime: Runtime, above: tuple[Path, ...]) -> Verdict:
    """Judge an object as part of the distribution that owns it, with the libraries beside it.

    `above` lists the objects from the opened one down to this one; it is empty for the opened one.
    """
    from . import linking, owner

    binary = binary._replace(owner=owner.find_owner(binary.path))
    verdict = judge(binary, runtime)
    if verdict.rejection and verdict.rejection.dimension in ("file", "platform", "package"):
        return verdict
    key, torch = str(binary.path), runtime.torch
    if torch is not None and torch.root == NOWHERE:
        return _judge_by_version(binary, runtime)
    siblings = binary.owner.libraries if binary.owner else {}
    whole = torch if torch is not None and not torch.problems else None
    lost, unresolved, beside = linking.link(binary, whole, siblings, next(iter(above), None))
    if whole is not None and (lost or unresolved):
        try:
            of_torch = torch_probe.missing_symbols(binary, whole)
        except (ElfError, OSError) as error:
            return judge(binary, _damaged(runtime, whole, error))
        if lost:
            # Symbols of a missing GPU library say nothing about torch's version.
            device = re.compile(r"cuda|CUDA|hip|HIP|xpu|XPU")
            unresolved = tuple(name for name in of_torch if not device.search(name))
    unresolved += linking.absent_imports(binary, whole)
    libraries = {**runtime.libraries, key: lost}
    facts = runtime._replace(missing={**runtime.missing, key: unresolved}, libraries=libraries)
    verdict = judge(binary, facts)
    for path in beside:
        if verdict.accepted and path not in above:
            below = _judge_of_others(read_binary(path), runtime, (*above, binary.path, path))
            if cause := below.cause:
                why = f"{below.binary.file}, which it needs: {cause.why}"
                verdict = Verdict(binary, (*verdict.findings, cause._replace(why=why)))
    return verdict


def _damaged(runtime: Runtime, torch: TorchInstall, error: Exception) -> Runtime:
    problem = printable(f"its libraries cannot be read ({error})")
    return runtime._replace(torch=torch._replace(problems=(problem,)))


def _judge_by_version(binary: BinaryRecord, runtime: Runtime) -> Verdict:
    """Judge for a torch that is not installed: only `symbols.json` tells its symbols."""
    here = runtime.torch.version_tuple if runtime.torch else (0, 0)
    missing = tuple(n for n in binary.torch_symbols if here not in minors_with([n]))
    facts = {**runtime.missing, str(binary.path): missing} if missing else runtime.missing
    return judge(binary, runtime._replace(missing=facts))
