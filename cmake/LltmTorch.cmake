# torch's headers and libraries as the target lltm_torch.
#
# Not by find_package(Torch): for a CUDA build of torch it wants a whole CUDA toolkit of torch's own
# version, which PyPI's wheels do not bring. Neither our library nor a program that uses it needs
# one.
#
# Looks where CMAKE_PREFIX_PATH or Torch_DIR point, then in LLTM_TORCH_DEFAULT. Sets
# LLTM_TORCH_ROOT, Torch_VERSION and LLTM_TORCH_HAS_CUDA.
find_file(lltm_torch_version TorchConfigVersion.cmake NO_CACHE NO_DEFAULT_PATH
  HINTS ${Torch_DIR} ${CMAKE_PREFIX_PATH} ENV CMAKE_PREFIX_PATH ${LLTM_TORCH_DEFAULT}
  PATH_SUFFIXES Torch share/cmake/Torch)
if(NOT lltm_torch_version)
  message(FATAL_ERROR "lltm: no torch was found: looked for TorchConfigVersion.cmake in "
    "CMAKE_PREFIX_PATH (${CMAKE_PREFIX_PATH}). Name your torch: -DCMAKE_PREFIX_PATH=\"$(python -c "
    "'import torch; print(torch.utils.cmake_prefix_path)')\"")
endif()
include("${lltm_torch_version}")
set(Torch_VERSION "${PACKAGE_VERSION}")
get_filename_component(LLTM_TORCH_ROOT "${lltm_torch_version}/../../../.." ABSOLUTE)
set(LLTM_TORCH_HAS_CUDA OFF)
if(EXISTS "${LLTM_TORCH_ROOT}/lib/libtorch_cuda.so")
  set(LLTM_TORCH_HAS_CUDA ON)
endif()
file(STRINGS "${LLTM_TORCH_ROOT}/share/cmake/Torch/TorchConfig.cmake" lltm_abi
  REGEX "_GLIBCXX_USE_CXX11_ABI=[01]")
if("${lltm_abi}" MATCHES "_GLIBCXX_USE_CXX11_ABI=([01])")
  set(lltm_abi ${CMAKE_MATCH_1})
else()
  set(lltm_abi 1)  # torch 2.7 and newer know no other
endif()
if(NOT TARGET lltm_torch)
  add_library(lltm_torch INTERFACE IMPORTED GLOBAL)
  set(lltm_torch_lib "${LLTM_TORCH_ROOT}/lib")
  # The linker must keep libtorch: it loads libtorch_cuda, where there is one, for the weak
  # references to CUDA functions.
  set_target_properties(lltm_torch PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES
      "${LLTM_TORCH_ROOT}/include;${LLTM_TORCH_ROOT}/include/torch/csrc/api/include"
    INTERFACE_COMPILE_DEFINITIONS "_GLIBCXX_USE_CXX11_ABI=${lltm_abi}"
    INTERFACE_LINK_OPTIONS "-Wl,-rpath-link,${lltm_torch_lib}"
    INTERFACE_LINK_LIBRARIES
      "-Wl,--no-as-needed;${lltm_torch_lib}/libtorch.so;${lltm_torch_lib}/libtorch_cpu.so;${lltm_torch_lib}/libc10.so;-Wl,--as-needed")
endif()
