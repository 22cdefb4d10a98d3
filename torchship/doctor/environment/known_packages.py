"""Well-known packages, and what they do without their binaries."""

from __future__ import annotations

#: Packages that cannot be imported without their binaries, each with the start of a file's name.
NEEDS = {
    "bitsandbytes": "libbitsandbytes",
    "causal-conv1d": "causal_conv1d_cuda",
    "flash-attn": "flash_attn_2_cuda",
    "mamba-ssm": "selective_scan_cuda",
    "torch-cluster": "_version_",
    "torch-scatter": "_version_",
    "torch-sparse": "_version_",
    "torch-spline-conv": "_version_",
    "vllm": "_C",
}
#: Packages of which a part works without their binaries.
CAN_DO_WITHOUT = {
    "apex": "amp_C",
    "detectron2": "_C",
    "mmcv": "_ext",
    "natten": "libnatten",
    "pytorch3d": "_C",
    "torchao": "_C",
    "torchvision": "_C",
    "xformers": "_C",
}
#: What packages that go on without their binaries say then.
FALLS_BACK = {
    "apex": "it says nothing and uses PyTorch's functions",
    "natten": "it says nothing and uses slower code",
    "torchao": "it logs `Skipping import of cpp extensions` and uses slower code",
    "xformers": "it warns `xFormers can't load C++/CUDA extensions` and loses its attention",
}
#: Packages that compile their code at first use, whatever their files are.
COMPILES = ("deepspeed", "flashinfer-python", "gsplat", "nvdiffrast")
