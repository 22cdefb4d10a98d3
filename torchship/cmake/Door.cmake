# Chooses the door to torch: the stable ABI or ATen. Include Torch.cmake before.
#
# Sets TORCH_CXX_STANDARD, DOOR_CHOSEN, DOOR_DEFINITIONS and DOOR_LIBRARIES.
if(Torch_VERSION VERSION_LESS PROJECT_OLDEST_TORCH)
  message(FATAL_ERROR "${NAME}: needs torch ${PROJECT_OLDEST_TORCH} or newer, got ${Torch_VERSION} in "
    "${TORCH_FOLDER}; name a newer one with -DCMAKE_PREFIX_PATH=...")
endif()
# Programs that use the library may include ATen's headers, which refuse C++17 from torch 2.14 on.
set(TORCH_CXX_STANDARD 20)
if(Torch_VERSION VERSION_LESS 2.14)
  set(TORCH_CXX_STANDARD 17)
endif()

set(DOOR_CHOSEN ${DOOR})
if(DOOR STREQUAL "AUTO")
  set(DOOR_CHOSEN stable)
  if(Torch_VERSION VERSION_LESS 2.10)
    set(DOOR_CHOSEN aten)
  endif()
endif()
if(DOOR_CHOSEN STREQUAL "stable")
  if(Torch_VERSION VERSION_LESS 2.10)
    message(FATAL_ERROR "${NAME}: the stable door needs torch 2.10 or newer, got "
      "${Torch_VERSION}; configure with -D${OPTIONS}_DOOR=aten")
  endif()
  # The library uses the interface of torch 2.10, so it works with every torch from 2.10 on.
  set(DOOR_DEFINITIONS TORCH_TARGET_VERSION=0x020a000000000000)
  set(DOOR_LIBRARIES ${CMAKE_DL_LIBS})
elseif(DOOR_CHOSEN STREQUAL "aten")
  if(NOT Torch_VERSION VERSION_LESS 2.13)
    set(TORCH_CXX_STANDARD 20)
  endif()
  # ATen's parallel_for is in a header and uses OpenMP, so the library is compiled with OpenMP.
  find_package(OpenMP REQUIRED COMPONENTS CXX)
  set(DOOR_DEFINITIONS AT_PER_OPERATOR_HEADERS)
  set(DOOR_LIBRARIES OpenMP::OpenMP_CXX)
else()
  message(FATAL_ERROR "${NAME}: ${OPTIONS}_DOOR must be AUTO, stable or aten, got ${DOOR}")
endif()
