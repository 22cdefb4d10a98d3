"""`python -m PACKAGE doctor`: runs torch-doctor, which is no part of a client's package.

The doctor of a checkout or of an installed torchship or torch-doctor may be of another version than
the engine that this module is a part of, so no record of one is given to the other.
"""

import sys
from importlib import import_module
from types import ModuleType

from ..judge.project import Project

#: What to do where no doctor is found.
_HOW_TO_GET_IT = (
    "torch-doctor is not installed in this environment. It needs no installation: take the file "
    "torch-doctor.pyz of a release, and run `python torch-doctor.pyz` with this Python. "
    "An installed torchship has it, too: `torchship doctor`"
)


def run_doctor(project: Project, arguments: list[str]) -> int:
    """The exit code of the doctor; 2 where there is none."""
    package = _found()
    if package is None:
        print(f"{project.command} doctor: {_HOW_TO_GET_IT}", file=sys.stderr)
        return 2
    records = import_module(f"{package.__name__}.judge.project").Project
    known = {name: value for name, value in project._asdict().items() if name in records._fields}
    command = import_module(f"{package.__name__}.doctor.command")
    return int(command.main(records(**known), arguments))


def _found() -> ModuleType | None:
    """The package with the doctor: in a checkout that of the engine, else an installed one."""
    engine = __name__.rpartition(".runtime.")[0]
    for name in (engine, "torch_doctor", "torchship"):
        try:
            import_module(f"{name}.doctor.command")
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.doctor.command.".startswith(f"{error.name}."):
                raise
        else:
            return import_module(name)
    return None
