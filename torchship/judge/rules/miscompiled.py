"""A rule about code of compilers that were seen to compute wrongly: it runs, without an error."""

from __future__ import annotations

from .. import fixes
from ..records import NOTE, REJECTED, BinaryRecord, Finding, Runtime, dotted
from ..words import codes
from .cuda import binary_cuda
from .rule import NEEDS_GPU, Rule, has_gpu_code

#: nvcc 13's code for compute capability 10.3 (Dao-AILab/causal-conv1d, issue 105).
_CAPABILITY = (10, 3)
_ARCHITECTURES = ("sm_103", "sm_103a", "sm_103f")
_CUDA_MAJOR = 13
#: The packages of which it is known; of others it may be true or not.
_KNOWN = ("causal-conv1d", "causal_conv1d")


def check_miscompiled(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    """Would a GPU that is here run code of nvcc 13 for sm_103?"""
    devices = [device for device in runtime.devices if device.capability == _CAPABILITY]
    own = [name for name in binary.cuda_archs if name in _ARCHITECTURES]
    cuda = binary_cuda(binary)
    if not devices or not own or cuda is None or cuda[0] != _CUDA_MAJOR:
        return None
    is_known = binary.owner is not None and binary.owner.name in _KNOWN
    consequence = "computes wrong results" if is_known else "may compute wrong results"
    return Finding(
        status=REJECTED if is_known else NOTE,
        code=codes.MISCOMPILED_GPU_CODE,
        observed=f"{own[0]} by CUDA {dotted(cuda)} on the {devices[0].name}",
        needed="code for sm_100, which the same GPU runs",
        why=f"{binary.file} holds code for {own[0]} by nvcc {_CUDA_MAJOR}, which {consequence} "
        "without an error (causal-conv1d's issue 105)",
        fix=fixes.in_words('compile it without sm_103: TORCH_CUDA_ARCH_LIST="10.0"'),
    )


MISCOMPILED = Rule(
    rank=530,
    dimension="GPU code",
    codes=(codes.MISCOMPILED_GPU_CODE,),
    check=check_miscompiled,
    needs=(NEEDS_GPU,),
    concerns=has_gpu_code,
)
