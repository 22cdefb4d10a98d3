"""Small repositories of extensions, each with traits of real ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from small_projects import write

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # which pytest brings there

#: What it builds follows from functions, globs, the environment and the machine.
COMPUTED = """\
import glob, os, subprocess
import torch
from setuptools import find_packages, setup
from torch.utils.cpp_extension import CUDA_HOME, BuildExtension, CppExtension, CUDAExtension

HERE = os.path.dirname(os.path.abspath(__file__))
open("trace.txt", "w").write("it ran")
exec(open("segment/version.py").read())


def has_nvcc():
    try:
        return b"release" in subprocess.check_output(["nvcc", "--version"])
    except OSError:
        return False


def configure():
    flags = {"cxx": ["-O3", "-DFOO", "-Wno-sign-compare", "-march=native"], "nvcc": []}
    sources = sorted(glob.glob(os.path.join(HERE, "csrc", "*.cpp")))
    if torch.cuda.is_available() and CUDA_HOME and has_nvcc():
        flags["nvcc"] += ["--use_fast_math", "-Xcompiler", "-fno-plt", "-arch=sm_90"]
        sources += glob.glob("csrc/cuda/*.cu")
        return CUDAExtension, sources, flags, [("WITH_CUDA", None)]
    return CppExtension, sources, flags, []


kind, sources, flags, macros = configure()
setup(
    name="Segment_Ops",
    version=__version__,
    description="Sums of segments",
    license="MIT",
    author="Ada",
    url="https://github.com/ada/segment",
    packages=find_packages(),
    package_data={"segment": ["tables/*.bin"]},
    python_requires=">=3.7",
    install_requires=["torch>=2.1", "einops>=0.6", "numpy"],
    extras_require={"test": ["scipy"]},
    entry_points={"console_scripts": ["segment=segment.cli:main"]},
    classifiers=["Topic :: Scientific/Engineering", "License :: OSI Approved :: MIT License"],
    ext_modules=[
        kind(
            "segment._C",
            sources,
            include_dirs=[os.path.join(HERE, "third_party", "headers")],
            define_macros=[("LIMIT", "64"), ("WITH_PYTHON", None), *macros],
            extra_compile_args=flags,
            extra_link_args=["-s", "-Wl,-z,now"],
            libraries=["cusparse", "fftw3"] if macros else [],
            py_limited_api=True,
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
"""
SOURCE = """\
#ifdef WITH_PYTHON
#include <Python.h>
#endif
#include <torch/extension.h>
at::Tensor twice(at::Tensor x) { return x * 2; }
#ifdef WITH_CUDA
#include <cuda_runtime.h>
at::Tensor twice_cuda(at::Tensor x);
#endif
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("twice", &twice, "doubles");
#ifdef FOO
  m.def("under_foo", &twice);
#endif
#ifdef BAR
  m.def("under_bar", &twice);
#endif
}
"""
REPOSITORY = {
    "setup.py": COMPUTED,
    "README.md": "Sums\n",
    "LICENSE": "Permission is hereby granted, free of charge, to any person\n",
    "segment/__init__.py": "from . import _C\n",
    "segment/version.py": '__version__ = "1.2.3"\n',
    "segment/cli.py": "",
    "segment/tables/one.bin": "1",
    "csrc/op.cpp": SOURCE,
    "csrc/cuda/op.cu": "#include <ATen/ATen.h>\n",
    "third_party/headers/sum.hpp": "",
    "third_party/headers/example.cpp": "int main() {}",
    "tests/test_op.cpp": "int main() {}",
}
#: What setup.py says is plain, and no torch is needed to run it.
PLAIN = """\
from setuptools import Extension, setup
setup(
    name="plain", version="0.3", packages=["plain"],
    ext_modules=[Extension("plain._C", ["plain/op.cpp"])],
)
"""
OPERATOR = """\
#include <ATen/ATen.h>
TORCH_LIBRARY(plain, m) { m.def("f(Tensor x) -> Tensor"); }
"""
PLAIN_REPOSITORY = {"setup.py": PLAIN, "plain/__init__.py": "", "plain/op.cpp": OPERATOR}
#: An extension for the CPU and one for CUDA, with headers of the same names.
OF_EACH_DEVICE = {
    "setup.py": """\
import torch
from setuptools import setup
from torch.utils.cpp_extension import CppExtension, CUDAExtension
found = [CppExtension("plain.cpu", ["cpu/op.cpp"], include_dirs=["cpu"])]
if torch.cuda.is_available():
    gpu = ["gpu/bind.cpp", "gpu/op.cu"]
    found.append(CUDAExtension("plain.gpu", gpu, include_dirs=["gpu"]))
setup(name="plain", version="0.3", packages=["plain"], ext_modules=found)
""",
    "plain/__init__.py": "",
    "cpu/op.cpp": f"#include <utils.h>\n{OPERATOR}",
    "cpu/utils.h": "int of_the_cpu;\n",
    "gpu/bind.cpp": "#include <utils.h>\n",
    "gpu/op.cu": "#include <utils.h>\n",
    "gpu/utils.h": "int of_cuda;\n",
}
CMAKE = """\
cmake_minimum_required(VERSION 3.18)
project(mutual VERSION 1.4 LANGUAGES CXX)
option(WITH_GPU_CUDA "with CUDA" ON)
find_package(Torch REQUIRED)
add_library(core core/sum.cpp)
target_compile_definitions(core PRIVATE CORE_VERSION=${PROJECT_VERSION})
target_link_libraries(core PUBLIC "${TORCH_LIBRARIES}")
set(srcs ${CMAKE_SOURCE_DIR}/native/bind.cc)  # the list of one
if(WITH_GPU_CUDA)
  list(APPEND srcs ${CMAKE_SOURCE_DIR}/native/gpu.cu)
  add_definitions(-DHAS_GPU)
endif()
add_subdirectory(python)
add_executable(probe probe.cpp)
target_link_libraries(probe core)
"""
CMAKE_REPOSITORY = {
    "setup.py": "from setuptools import Extension, setup\n"
    "setup(name='mutual', version='1.4', package_dir={'': 'src'}, packages=['mutual'],"
    " ext_modules=[Extension('_mutual', [])])\n",
    "CMakeLists.txt": CMAKE,
    "python/CMakeLists.txt": 'include_directories("${CMAKE_SOURCE_DIR}/core")\n'
    "pybind11_add_module(_mutual MODULE ${srcs})\n"
    "target_link_libraries(_mutual PRIVATE core fftw3)\n",
    "src/mutual/__init__.py": "",
    "core/sum.cpp": "#include <torch/torch.h>\n",
    "core/sum.h": "",
    "native/bind.cc": "",
    "native/gpu.cu": "",
    "probe.cpp": "int main() {}",
}


def make(root: Path, files: dict[str, str]) -> Path:
    """The repository, with one commit."""
    write(root, files)
    subprocess.run(["git", "-C", str(root), "init", "-q"], check=True)
    commit(root)
    return root


def commit(root: Path) -> None:
    identity = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]
    subprocess.run(["git", "-C", str(root), "add", "-A"], check=True)
    subprocess.run(["git", "-C", str(root), *identity, "commit", "-qm", "One"], check=True)


#: A setup.py that says something else on a machine without CUDA than on one with it.
OTHERWISE = {
    "setup.py": """\
import torch
from setuptools import setup
from torch.utils.cpp_extension import CppExtension, CUDAExtension
if torch.cuda.is_available():
    name, needs = "plain", ["numpy", "cuda-python"]
    found = CUDAExtension(
        "plain._C", ["plain/op.cpp", "plain/op.cu"], extra_compile_args={"cxx": ["-DGPU"]}
    )
    more = {}
else:
    name, needs, more = "plain-cpu", ["numpy", "numba"], {"classifiers": ["Topic :: Education"]}
    found = CppExtension(
        "plain._C", ["plain/op.cpp", "plain/cpu.cpp"], include_dirs=["plain/cpu"],
        extra_compile_args=["-DNO_GPU", "-fno-math-errno"], libraries=["fftw3"],
        library_dirs=["/opt/fftw"],
    )
setup(name=name, packages=["plain"], install_requires=needs, ext_modules=[found], **more)
""",
    "plain/__init__.py": "",
    "plain/op.cpp": OPERATOR,
    "plain/op.cu": "",
    "plain/cpu.cpp": "",
    "plain/cpu/utils.h": "",
}


def read_toml(content: str) -> dict[str, Any]:
    return tomllib.loads(content)
