"""Why an import failed: what was seen, and the environment, to a reason.

In: a `Case`, which holds one `Seen` and the environment. Out: a `Finding`, with its code, the
reason in words, and the fix. Each module has one kind of reason: a function that takes a case
and returns a finding, or None where its kind is not the reason. `REASONS` lists them, in the
order in which they are asked; the first answer counts. A wrong reason is worse than none, so the
last one says what is not known.

Begin with `case.py`; its `catalog` answers which distribution a file or a module belongs to.
"""

from __future__ import annotations

from collections.abc import Callable

from ...judge.records import Finding
from . import (
    backend,
    beside_path,
    build_tools_gone,
    building,
    closed_cache,
    crash,
    damaged,
    generated_code,
    hidden,
    known,
    leftover,
    limits,
    linking,
    loaded_early,
    metadata_gone,
    missing_module,
    missing_name,
    moved,
    nameless_user,
    namespace,
    no_file,
    not_known,
    older_copy,
    operators,
    other_arguments,
    other_cuda,
    other_torch,
    out_of_time,
    placeholder,
    refused_variable,
    registered_twice,
    sanitizer,
    shared_folder,
    stale_file,
    stripped,
    unmet,
    unpacked,
    unreadable,
    user_site,
    warned,
    zipped,
)
from .case import Case

Reason = Callable[[Case], Finding | None]

#: Those that show in facts come before those that are read out of a text.
REASONS: tuple[Reason, ...] = (
    hidden.torch_is_hidden,
    hidden.module_is_hidden,
    older_copy.older_copy_comes_first,
    unpacked.wheel_is_only_unpacked,
    damaged.files_are_damaged,
    unreadable.python_is_unreadable,
    moved.folder_has_moved,
    registered_twice.operators_are_registered_twice,
    registered_twice.type_is_registered_twice,
    stripped.docstrings_are_left_out,
    zipped.object_lies_in_an_archive,
    limits.limit_is_reached,
    sanitizer.sanitizer_is_not_first,
    build_tools_gone.build_tools_are_gone,
    warned.warning_is_an_error,
    nameless_user.user_has_no_name,
    refused_variable.variable_is_refused,
    backend.backend_fails,
    closed_cache.cache_is_closed,
    building.tool_is_not_found,
    generated_code.generated_code_is_refused,
    other_torch.package_compares_torch,
    stale_file.file_is_left_over,
    no_file.package_has_no_file,
    placeholder.name_alone_is_installed,
    shared_folder.two_wrote_one_folder,
    linking.torch_is_for_another_python,
    linking.linker_refuses,
    namespace.part_is_left_out,
    beside_path.module_lies_beside_the_path,
    user_site.module_is_the_user_s,
    leftover.folder_is_left_over,
    loaded_early.module_was_loaded_early,
    metadata_gone.metadata_are_not_there,
    missing_module.module_is_missing,
    missing_name.name_is_missing,
    missing_module.package_asks_for_others,
    unmet.installed_ones_are_refused,
    unmet.words_name_a_requirement,
    other_arguments.arguments_do_not_fit,
    other_cuda.package_compares_cuda,
    operators.operator_is_missing,
    crash.process_died,
    out_of_time.import_does_not_end,
    unmet.requirement_on_the_way_is_not_met,
    known.message_is_known,
)


def explain(case: Case) -> Finding:
    """The reason for what was seen, or that it is not known."""
    for reason in REASONS:
        finding = reason(case)
        if finding is not None:
            return older_copy.with_copy_that_fits(finding, case)
    return not_known.reason_is_not_known(case)
