"""The package of the distribution torch-doctor: the doctor, and the judge that it uses.

`judge_file(path, probe_runtime())` gives a `Verdict` for any torch extension; see
docs/fails/compat.md.
"""

from .doctor import judge_file as judge_file
from .judge import BinaryRecord as BinaryRecord
from .judge import Finding as Finding
from .judge import Runtime as Runtime
from .judge import TorchInstall as TorchInstall
from .judge import TorchNotFoundError as TorchNotFoundError
from .judge import Verdict as Verdict
from .judge import find_torch as find_torch
from .judge import judge as judge
from .judge import probe_runtime as probe_runtime
from .judge import read_binary as read_binary
