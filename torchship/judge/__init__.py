"""Will this shared object work in this Python, with this torch, on this machine?

`judge_file(path, probe_runtime())` gives a `Verdict` for a torch extension, by its file alone: it
loads nothing, looks at no package's metadata, and needs the standard library alone. What a package
says of itself, the doctor adds; see docs/fails/compat.md.
"""

from .machine.runtime_probe import probe_runtime as probe_runtime
from .machine.torch_probe import TorchNotFoundError as TorchNotFoundError
from .machine.torch_probe import find_torch as find_torch
from .reading.binary import read_binary as read_binary
from .records import BinaryRecord as BinaryRecord
from .records import BuildRecord as BuildRecord
from .records import Device as Device
from .records import Driver as Driver
from .records import Environment as Environment
from .records import Finding as Finding
from .records import GlueName as GlueName
from .records import KernelsName as KernelsName
from .records import NameFormatError as NameFormatError
from .records import Runtime as Runtime
from .records import TorchInstall as TorchInstall
from .records import VariantName as VariantName
from .records import Verdict as Verdict
from .verdict.judgement import judge as judge
from .verdict.judgement import judge_file as judge_file
from .verdict.selection import Selection as Selection
from .verdict.selection import select as select
