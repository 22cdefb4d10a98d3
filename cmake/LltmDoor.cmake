# Chooses the door to torch, after LltmTorch.cmake.
#
# Sets LLTM_CXX_STANDARD, LLTM_DOOR_CHOSEN, LLTM_DOOR_DEFINITIONS and LLTM_DOOR_LIBRARIES.
if(Torch_VERSION VERSION_LESS 2.4)
  message(FATAL_ERROR "lltm: needs torch 2.4 or newer, got ${Torch_VERSION} in "
    "${LLTM_TORCH_ROOT}; name a newer one with -DCMAKE_PREFIX_PATH=...")
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
