"""Judges an object as part of its package: with its metadata, and with its libraries."""

from __future__ import annotations

from pathlib import Path

from ...judge.budget import Budget, BudgetSpentError
from ...judge.machine import mounts
from ...judge.reading.binary import read_binary, unread
from ...judge.records import BinaryRecord, Runtime, Unmet, Verdict
from ...judge.verdict.gathering import gather
from ...judge.verdict.judgement import cannot_be_told
from ...judge.verdict.judgement import judge as judge
from ..environment import owner, requirements, siblings
from ..fixes.mending import install
from . import torch_loading


def judge_package_file(binary: BinaryRecord | Path | str, runtime: Runtime) -> Verdict:
    """Judge a shared object of any package: a file, or the `BinaryRecord` that was read from it.

    Unlike `judge_file` of the judge, it asks the metadata of the package for which torch it was
    built, and judges the libraries of the package that load with the object. This is a run of its
    own. Programs import it as `torch_doctor.judge_file`.
    """
    runtime.target.budget = Budget()
    return judge_package_file_in_run(binary, runtime)


def judge_package_file_in_run(binary: BinaryRecord | Path | str, runtime: Runtime) -> Verdict:
    """As `judge_package_file`, within the budget of a run: where it is spent, the verdict is that
    nothing can be told."""
    budget = runtime.target.budget
    if not isinstance(binary, BinaryRecord):
        path = Path(binary)
        try:
            binary = read_binary(path, budget=budget)
        except BudgetSpentError as error:
            return cannot_be_told(unread(path), str(error))
    binary = binary._replace(noexec=mounts.forbidding_mount(runtime.target, binary.path))
    try:
        budget.check_time()
        if runtime.torch_import is None:
            runtime = runtime._replace(torch_import=torch_loading.check_import(runtime))
        return _judge_with_libraries(binary, runtime)
    except BudgetSpentError as error:
        return cannot_be_told(binary, str(error))


def _judge_with_libraries(binary: BinaryRecord, runtime: Runtime) -> Verdict:
    """Judge an object as part of the distribution that owns it, with the libraries of its
    package that load with it: each of them once, whether they form a chain or a ring.
    Raises BudgetSpentError."""
    verdict, libraries = _judge_alone(binary, runtime, None)
    for path in libraries:
        if verdict.rejection is not None:
            break
        library = read_binary(path, budget=runtime.target.budget)
        below, _ = _judge_alone(library, runtime, binary.path)
        cause = below.cause if verdict.accepted else below.rejection
        if cause is not None:
            why = f"{below.binary.file}, which it needs: {cause.why}"
            verdict = Verdict(verdict.binary, (*verdict.findings, cause._replace(why=why)))
    return verdict


def _judge_alone(
    binary: BinaryRecord, runtime: Runtime, opened: Path | None
) -> tuple[Verdict, tuple[Path, ...]]:
    """The verdict on one object alone, and the libraries of its package that load with it.

    `opened` is the object that needs this one; None for the one that is opened itself. Raises
    BudgetSpentError.
    """
    if not runtime.is_ours(binary):
        binary = _with_package(binary, runtime)
    gathered = gather(binary, runtime, opened=opened)
    if gathered.missing_libraries and not runtime.is_ours(binary):
        binary = requirements.look_around(binary, gathered.missing_libraries, runtime)
        unmet = requirements.not_installed(binary, runtime)
        binary = binary._replace(
            unmet=tuple(Unmet(text=text, fix=install(runtime, text)) for text in unmet)
        )
    return judge(binary, gathered.runtime), gathered.package_libraries


def _with_package(binary: BinaryRecord, runtime: Runtime) -> BinaryRecord:
    """The binary with what the package that owns it says. Raises BudgetSpentError."""
    sites = [runtime.torch.root.parent] if runtime.torch is not None else []
    binary = binary._replace(
        owner=binary.owner or owner.find_owner(runtime.target, binary.path, sites)
    )
    return binary._replace(of_siblings=siblings.minors_of_build(runtime.target, binary))
