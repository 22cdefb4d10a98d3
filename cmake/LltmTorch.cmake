# Finds torch and chooses the door.
#
# Sets LLTM_TORCH_TARGET, LLTM_TORCH_HAS_CUDA, LLTM_CXX_STANDARD, LLTM_DOOR_CHOSEN,
# LLTM_DOOR_DEFINITIONS and LLTM_DOOR_LIBRARIES.
include("${CMAKE_CURRENT_LIST_DIR}/LltmPlainTorch.cmake")
lltm_find_torch_root(LLTM_TORCH_ROOT)
set(LLTM_NO_TORCH
  "lltm: no torch was found: looked for TorchConfig.cmake in CMAKE_PREFIX_PATH "
  "(${CMAKE_PREFIX_PATH}). Name your torch: -DCMAKE_PREFIX_PATH=\"$(python -c 'import torch; "
  "print(torch.utils.cmake_prefix_path)')\"")
if(LLTM_PLAIN_TORCH)
  if(LLTM_TORCH_ROOT STREQUAL "")
    message(FATAL_ERROR ${LLTM_NO_TORCH})
  endif()
  lltm_plain_torch("${LLTM_TORCH_ROOT}")
  set(LLTM_TORCH_TARGET lltm_torch)
else()
  if(EXISTS "${LLTM_TORCH_ROOT}/lib/libtorch_cuda.so")
    message(STATUS "lltm: ${LLTM_TORCH_ROOT} is a CUDA build of torch, for which find_package(Torch) "
      "wants a whole CUDA toolkit; where there is none, configure with -DLLTM_PLAIN_TORCH=ON")
  endif()
  find_package(Torch QUIET)
  if(NOT Torch_FOUND)
    message(FATAL_ERROR ${LLTM_NO_TORCH})
  endif()
  # torch_library, not torch: it keeps libtorch among the libraries needed, and with it
  # libtorch_cuda, where there is one, for the weak references to CUDA functions.
  set(LLTM_TORCH_TARGET torch_library)
  set(LLTM_TORCH_HAS_CUDA OFF)
  if(TARGET torch_cuda)
    set(LLTM_TORCH_HAS_CUDA ON)
  endif()
endif()
if(Torch_VERSION VERSION_LESS 2.4)
  message(FATAL_ERROR "lltm: needs torch 2.4 or newer, got ${Torch_VERSION} in "
    "${TORCH_INSTALL_PREFIX}; name a newer one with -DCMAKE_PREFIX_PATH=...")
endif()
if(Torch_VERSION VERSION_LESS 2.14)
  set(LLTM_CXX_STANDARD 17)
else()
  set(LLTM_CXX_STANDARD 20)
endif()

set(LLTM_DOOR_CHOSEN ${LLTM_DOOR})
if(LLTM_DOOR STREQUAL "AUTO")
  if(Torch_VERSION VERSION_LESS 2.10)
    set(LLTM_DOOR_CHOSEN aten)
  else()
    set(LLTM_DOOR_CHOSEN stable)
  endif()
endif()
if(LLTM_DOOR_CHOSEN STREQUAL "stable")
  if(Torch_VERSION VERSION_LESS 2.10)
    message(FATAL_ERROR "lltm: the stable door needs torch 2.10 or newer, got ${Torch_VERSION}; "
      "configure with -DLLTM_DOOR=aten")
  endif()
  # The newest interface the library may use: it works with every torch from 2.10 on.
  set(LLTM_DOOR_DEFINITIONS TORCH_TARGET_VERSION=0x020a000000000000)
  set(LLTM_DOOR_LIBRARIES ${CMAKE_DL_LIBS})
elseif(LLTM_DOOR_CHOSEN STREQUAL "aten")
  # ATen's parallel_for is OpenMP in a header.
  find_package(OpenMP REQUIRED COMPONENTS CXX)
  set(LLTM_DOOR_DEFINITIONS AT_PER_OPERATOR_HEADERS)
  set(LLTM_DOOR_LIBRARIES OpenMP::OpenMP_CXX)
else()
  message(FATAL_ERROR "lltm: LLTM_DOOR must be AUTO, stable or aten, got ${LLTM_DOOR}")
endif()
