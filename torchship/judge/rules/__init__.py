"""The rules of a verdict: what is asked of an object, in which order.

In come the facts of one object (`BinaryRecord`) and of the torch, the Python and the machine
(`Runtime`), as they were gathered; out goes a `Finding` for each question that applies. Begin
reading at `rule.py`, which says what a rule is; the modules beside it hold the rules by what they
are about: the file, the host, torch's ABI, CUDA, what the dynamic linker looks up.

A new rule is a module here, with a test: docs/how/new-rule.md.
"""

from ..words import codes

# rules:begin, written by docs/_ext/code_pages.py from the modules of this folder
from . import cuda, dlopen, file, host, libraries, loading, miscompiled, torch_abi
from .rule import Rule as Rule

#: By their ranks.
RULES: tuple[Rule, ...] = (
    file.WHOLE_FILE,
    file.PACKAGE,
    file.PACKAGE_VERSION,
    file.KERNEL_TABLE,
    host.PLATFORM,
    host.PAGE_SIZE,
    host.FILE_SYSTEM,
    host.PYTHON,
    torch_abi.INSTALLED_TORCH,
    torch_abi.TORCH_VERSION,
    torch_abi.CXX_ABI,
    torch_abi.REGISTRATION,
    loading.FIRST_LIBRARY,
    host.CXXABI,
    host.GLIBC,
    host.GLIBCXX,
    cuda.CUDA_BUILD,
    cuda.DRIVER,
    cuda.GPU_ARCHITECTURE,
    miscompiled.MISCOMPILED,
    torch_abi.TORCH_SYMBOLS,
    libraries.LIBRARIES,
    libraries.SYMBOLS,
    loading.REFUSED_LIBRARY,
    dlopen.DLOPEN,
    loading.SYMBOL_VERSIONS,
    loading.SYMBOLS_OF_LIBRARIES,
    loading.LINKS_TO_TORCH,
    loading.EXECUTABLE_STACK,
    loading.STATIC_TLS,
    torch_abi.VOUCHED,
)
# rules:end

#: Every code of a finding, of a rule or of another part, by its name such as `TD110`.
CODES: dict[str, codes.Code] = {
    **codes.ALL,
    **{code: code for rule in RULES for code in rule.codes},
}
