"""Messages of real threads, and what the site's search must find first for each."""

from __future__ import annotations

from typing import NamedTuple


class ThreadMessage(NamedTuple):
    """A message as somebody posted it."""

    thread: str  #: on GitHub: owner, name and number
    message: str
    page: str  #: the page that explains it


THREADS = (
    ThreadMessage(
        "Dao-AILab/flash-attention#931",
        "flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: undefined symbol: "
        "_ZN3c104cuda9SetDeviceEi",
        "fails/codes/td115.html",
    ),
    ThreadMessage(
        "Dao-AILab/flash-attention#1832",
        "ImportError: /opt/lib/python3.12/site-packages/flash_attn_2_cuda.cpython-312-x86_64-"
        "linux-gnu.so: undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_"
        "stringIcSt11char_traitsIcESaIcEEE",
        "fails/codes/td116.html",
    ),
    ThreadMessage(
        "pytorch/pytorch#122494",
        "RuntimeError: operator torchvision::nms does not exist",
        "fails/codes/td127.html",
    ),
    ThreadMessage(
        "pytorch/pytorch#131284",
        "OSError: libcudart.so.12: cannot open shared object file: No such file or directory",
        "fails/codes/td402.html",
    ),
    ThreadMessage(
        "pytorch/pytorch#111469",
        "ImportError: /usr/local/lib/python3.10/dist-packages/torch/lib/../../nvidia/cusparse/lib/"
        "libcusparse.so.12: undefined symbol: __nvJitLinkAddData_12_1, version libnvJitLink.so.12",
        "fails/codes/td503.html",
    ),
    ThreadMessage(
        "vllm-project/vllm#19906",
        "CUDA error: no kernel image is available for execution on the device",
        "fails/codes/td405.html",
    ),
    ThreadMessage(
        "shader-slang/slang-torch#7",
        "ImportError: /usr/local/home/[uname]/miniconda3/envs/slang_torch/bin/../lib/libstdc++.so.6"
        ": version `GLIBCXX_3.4.32' not found (required by /usr/local/home/[uname]/work/"
        "example_slang/.slangtorch_cache/square/44136fa355b3678a/0/_slangtorch_square.so)",
        "fails/codes/td305.html",
    ),
    ThreadMessage(
        "icip-cas/AutoAlign#25",
        "RuntimeError: The detected CUDA version (11.8) mismatches the version that was used to "
        "compile PyTorch (12.4). Please make sure to use the same CUDA versions.",
        "fails/codes/td801.html",
    ),
    ThreadMessage(
        "facebookresearch/xformers#982",
        "WARNING[XFORMERS]: xFormers can't load C++/CUDA extensions. xFormers was built for:",
        "fails/codes/td704.html",
    ),
    ThreadMessage(
        "bitsandbytes-foundation/bitsandbytes#1848",
        "bitsandbytes library load error: Configured CUDA binary not found at /usr/local/lib/"
        "python3.12/dist-packages/bitsandbytes/libbitsandbytes_cuda131.so",
        "fails/codes/td410.html",
    ),
    ThreadMessage(
        "nmslib/hnswlib#462",
        "ImportError: /usr/lib/aarch64-linux-gnu/libgomp.so.1: cannot allocate memory in static "
        "TLS block",
        "fails/codes/td308.html",
    ),
    ThreadMessage(
        "iree-org/iree#19303",
        "RuntimeError: Only a single TORCH_LIBRARY can be used to register the namespace turbine; "
        "please put all of your definitions in a single TORCH_LIBRARY block.",
        "fails/codes/td119.html",
    ),
    ThreadMessage(
        "semchan/NLUT#15",
        "ImportError: libtorch_cuda_cu.so: cannot open shared object file: No such file or "
        "directory",
        "fails/codes/td504.html",
    ),
    ThreadMessage(
        "pytorch/pytorch#54827",
        "Import error;libc10_cuda.so: cannot open shared object file: No such file or directory",
        "fails/codes/td401.html",
    ),
    ThreadMessage(
        "ai4d-iasc/trixie#97",
        "/lib64/libc.so.6: version `GLIBC_2.29' not found",
        "fails/codes/td304.html",
    ),
    ThreadMessage(
        "xai4space/meteors#20",
        "A module that was compiled using NumPy 1.x cannot be run in NumPy 2.0.0 as it may crash.",
        "fails/codes/td705.html",
    ),
    ThreadMessage(
        "facebookresearch/detectron2#460",
        "AssertionError: Torch not compiled with CUDA enabled",
        "fails/codes/td401.html",
    ),
    ThreadMessage(
        "NVIDIA/flownet2-pytorch#218",
        "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install "
        "root.",
        "fails/codes/td802.html",
    ),
    ThreadMessage(
        "pytorch/pytorch#136556",
        "/usr/include/crt/host_config.h:132:2: error: #error -- unsupported GNU version! gcc "
        "versions later than 12 are not supported!",
        "fails/codes/td803.html",
    ),
    ThreadMessage(
        "pytorch/vision#3058",
        "RuntimeError: Could not run 'torchvision::nms' with arguments from the 'CUDA' backend. "
        "'torchvision::nms' is only available for these backends: [CPU, BackendSelect]",
        "fails/codes/td407.html",
    ),
    ThreadMessage(
        "pytorch/pytorch#150733",
        "GeForce RTX 5090 D with CUDA capability sm_120 is not compatible with the current "
        "PyTorch installation.",
        "fails/codes/td408.html",
    ),
    ThreadMessage(
        "NX-AI/xlstm#76",
        "RuntimeError: Ninja is required to load C++ extensions",
        "fails/codes/td807.html",
    ),
    ThreadMessage(
        "jwyang/faster-rcnn.pytorch#742",
        "ImportError: dynamic module does not define module export function (PyInit__C)",
        "fails/codes/td216.html",
    ),
    ThreadMessage(
        "pytorch/pytorch#8036",
        "ImportError: ./smtl_cuda.so: undefined symbol: THPVariableClass",
        "fails/codes/td126.html",
    ),
)

#: Words, not messages, and the folder or page that comes first.
WORDS = {
    "undefined symbol": "fails/codes/td115.html",
    "no kernel image": "fails/codes/td405.html",
    "stable abi": "ship/stable-abi.html",
    "Docker": "start/containers.html",
    "blackwell": "fails/faq.html",
    "torchvision": "fails/packages.html",
    "flash-attn": "fails/packages.html",
    "bitsandbytes": "fails/packages.html",
    "conda-forge feedstock": "ship/conda-forge.html",
    "glossary": "how/glossary.html",
}
