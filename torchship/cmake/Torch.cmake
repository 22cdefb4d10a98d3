# Defines the target torch_extension_torch: torch's headers and libraries.
#
# It avoids find_package(Torch), which needs a whole CUDA toolkit for a CUDA build of torch. PyPI's
# wheels do not bring the toolkit, and neither our library nor a program that uses our library needs
# all of the toolkit.
#
# Looks for torch in Torch_DIR and CMAKE_PREFIX_PATH, then in TORCH_DEFAULT. Sets TORCH_FOLDER,
# Torch_VERSION and TORCH_HAS_CUDA. NAME is the project's name for messages.
find_file(torch_version_file TorchConfigVersion.cmake NO_CACHE NO_DEFAULT_PATH
  HINTS ${Torch_DIR} ${CMAKE_PREFIX_PATH} ENV CMAKE_PREFIX_PATH ${TORCH_DEFAULT}
  PATH_SUFFIXES Torch share/cmake/Torch)
if(NOT torch_version_file)
  message(FATAL_ERROR "${NAME}: no torch was found: looked for TorchConfigVersion.cmake in "
    "CMAKE_PREFIX_PATH (${CMAKE_PREFIX_PATH}). Name your torch: -DCMAKE_PREFIX_PATH=\"$(python -c "
    "'import torch; print(torch.utils.cmake_prefix_path)')\"")
endif()
include("${torch_version_file}")
set(Torch_VERSION "${PACKAGE_VERSION}")
get_filename_component(TORCH_FOLDER "${torch_version_file}/../../../.." ABSOLUTE)
set(TORCH_HAS_CUDA OFF)
if(EXISTS "${TORCH_FOLDER}/lib/libtorch_cuda.so")
  set(TORCH_HAS_CUDA ON)
endif()
file(STRINGS "${TORCH_FOLDER}/share/cmake/Torch/TorchConfig.cmake" torch_abi
  REGEX "_GLIBCXX_USE_CXX11_ABI=[01]")
if("${torch_abi}" MATCHES "_GLIBCXX_USE_CXX11_ABI=([01])")
  set(torch_abi ${CMAKE_MATCH_1})
else()
  set(torch_abi 1)  # the only ABI of torch 2.7 and newer
endif()
if(NOT TARGET torch_extension_torch)
  add_library(torch_extension_torch INTERFACE IMPORTED GLOBAL)
  set(torch_lib "${TORCH_FOLDER}/lib")
  # The linker must keep libtorch: in a CUDA build of torch, libtorch loads libtorch_cuda, which has
  # the functions of our weak references.
  set_target_properties(torch_extension_torch PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES
      "${TORCH_FOLDER}/include;${TORCH_FOLDER}/include/torch/csrc/api/include"
    INTERFACE_COMPILE_DEFINITIONS "_GLIBCXX_USE_CXX11_ABI=${torch_abi}"
    INTERFACE_LINK_OPTIONS "-Wl,-rpath-link,${torch_lib}"
    INTERFACE_LINK_LIBRARIES
      "-Wl,--no-as-needed;${torch_lib}/libtorch.so;${torch_lib}/libtorch_cpu.so;${torch_lib}/libc10.so;-Wl,--as-needed")
endif()
