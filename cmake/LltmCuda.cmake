# Decides whether CUDA kernels are built, and for which architectures.
#
# Sets LLTM_CUDA_CHOSEN, LLTM_CUDA_REASON and LLTM_CUDA_ARCHITECTURES. Whether there is a GPU does
# not matter: machines that build have none.
include(CheckLanguage)

set(LLTM_CUDA_CHOSEN OFF)
set(LLTM_CUDA_REASON "no, LLTM_CUDA=${LLTM_CUDA}")
if(LLTM_CUDA STREQUAL "AUTO" AND NOT LLTM_TORCH_HAS_CUDA)
  set(LLTM_CUDA_REASON "no, torch is a CPU build")
elseif(LLTM_CUDA)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(LLTM_CUDA_CHOSEN ON)
  elseif(LLTM_CUDA STREQUAL "AUTO")
    set(LLTM_CUDA_REASON "no, nvcc was not found; set CUDACXX to it")
  else()
    message(FATAL_ERROR "lltm: LLTM_CUDA=${LLTM_CUDA} asks for CUDA kernels, but no nvcc that works "
      "was found; set CUDACXX to one, or configure with -DLLTM_CUDA=OFF")
  endif()
endif()

if(LLTM_CUDA_CHOSEN)
  # What TORCH_CUDA_ARCH_LIST asks for, else every major architecture this nvcc compiles for.
  set(LLTM_CUDA_ARCHITECTURES all-major)
  if(DEFINED CMAKE_CUDA_ARCHITECTURES AND CMAKE_CUDA_ARCHITECTURES)
    set(LLTM_CUDA_ARCHITECTURES ${CMAKE_CUDA_ARCHITECTURES})
  elseif(NOT "$ENV{TORCH_CUDA_ARCH_LIST}" STREQUAL "")
    set(LLTM_CUDA_ARCHITECTURES)
    string(REGEX REPLACE "[ ,;]+" ";" entries "$ENV{TORCH_CUDA_ARCH_LIST}")
    foreach(entry IN LISTS entries)
      if(NOT entry MATCHES "^([0-9]+)\\.([0-9][af]?)(\\+PTX)?$")
        message(FATAL_ERROR "lltm: TORCH_CUDA_ARCH_LIST: '${entry}' is no CUDA architecture; write "
          "for example 8.0;9.0+PTX")
      endif()
      set(number ${CMAKE_MATCH_1}${CMAKE_MATCH_2})
      if(NOT CMAKE_MATCH_3)
        string(APPEND number "-real")
      endif()
      list(APPEND LLTM_CUDA_ARCHITECTURES ${number})
    endforeach()
  endif()
  enable_language(CUDA)
  set(LLTM_CUDA_REASON "nvcc ${CMAKE_CUDA_COMPILER_VERSION} for ${LLTM_CUDA_ARCHITECTURES}")
endif()
