"""Which names a new project cannot have, and why."""

import keyword
import re
import sys
from collections.abc import Iterator
from pathlib import Path

_TORCHSHIP = Path(__file__).resolve().parents[1]

#: Why no other project can have a name; the one that has it may keep it.
OF_ANOTHER = "is a package that others use beside torch"
#: Why a project cannot have these names. `why_not` adds those of Python and of the tools.
TAKEN: dict[str, str] = {
    "is a word of C++, and the namespace of your operators cannot have it": """
        alignas alignof and and_eq asm auto bitand bitor bool break case catch char class
        co_await co_return co_yield compl concept const const_cast consteval constexpr
        constinit continue decltype default delete do double dynamic_cast else enum
        explicit export extern false float for friend goto if inline int linux long
        mutable namespace new noexcept not not_eq nullptr operator or or_eq private
        protected public register reinterpret_cast requires return short signed sizeof
        static static_assert static_cast std struct switch template this thread_local
        throw true try typedef typeid typename union unix unsigned using virtual void
        volatile wchar_t while xor xor_eq""",
    "is a namespace of PyTorch's own operators or C++": """
        aoti at aten c10 c10d c10d_functional caffe2 cplib cuda debug_mode_ops debugprims detail
        export flex_lib fsdp inductor inductor_prims mkl mkldnn mkldnn_prepacked onednn
        onnx onnx_symbolic prepacked prim prims profiler quantization quantized
        quantized_decomposed rngprims sparse static_runtime streams symm_mem torch
        torch_extension xnnpack""",
    "is a package that torch or a build needs, which yours would hide": """
        conda filelock fsspec functorch jinja2 markupsafe mpmath networkx ninja numpy
        nvidia pip pkg_resources pybind11 setuptools sympy torch torchgen triton
        typing_extensions wheel yaml""",
    "is a package of torchship itself": "torch_doctor torchship",
    OF_ANOTHER: """
        apex bitsandbytes causal_conv1d deepspeed fbgemm_gpu flash_attn flashinfer
        haste_pytorch jax kernels lltm lltm_conda mamba_ssm matplotlib pandas pyg_lib scipy
        sklearn tensorflow torch_scatter torch_sparse torchao torchaudio torchcodec
        torchdata torchvision transformer_engine transformers vllm xformers""",
    "is a target that CMake makes itself": "all clean help install package rebuild_cache",
    "is a folder of the new repository": """
        benchmarks build cmake csrc dist docs engine examples include lib recipe
        requirements scripts tests vendor""",
    "is a module of the new repository's build": "backend",
}


def why_not(name: str) -> str:
    """Why no project can have this name; "" if it can."""
    module = name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", name):
        return "must be lower-case words joined by `-` or `_`"
    if len(name) == 1:
        return "must have at least two letters"
    if keyword.iskeyword(module):
        return "is a word of Python"
    if module in sys.stdlib_module_names:
        return "is a module of Python's library, which your package would hide"
    for reason, names in TAKEN.items():
        if module in names.split():
            return reason
    if module in set(_tools()):
        return "is a package that the tools need, which yours would hide"
    return ""


def _tools() -> Iterator[str]:
    """The packages that torchship's locked requirements name, as modules."""
    for lock in _TORCHSHIP.rglob("*requirements*.txt"):
        content = lock.read_text(encoding="utf-8")
        for name in re.findall(r"^([\w.-]+)(?:\[.*\])?==", content, re.MULTILINE):
            yield name.lower().replace("-", "_")
