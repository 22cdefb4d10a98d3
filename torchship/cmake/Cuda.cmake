# Decides whether CUDA kernels are built, and for which architectures.
#
# Sets CUDA_CHOSEN, CUDA_REASON and, if CUDA_CHOSEN is on, CUDA_ARCHITECTURES. It looks for no GPU,
# since machines that build often have none.
include(CheckLanguage)

set(CUDA_CHOSEN OFF)
set(CUDA_REASON "no, ${OPTIONS}_CUDA=${CUDA}")
if(CUDA STREQUAL "AUTO" AND NOT TORCH_HAS_CUDA)
  set(CUDA_REASON "no, torch is a CPU build")
elseif(CUDA)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(CUDA_CHOSEN ON)
  elseif(CUDA STREQUAL "AUTO")
    set(CUDA_REASON "no, found no nvcc that works; set CUDACXX to one")
  else()
    message(FATAL_ERROR "${NAME}: ${OPTIONS}_CUDA=${CUDA} asks for CUDA kernels, but no nvcc that "
      "works was found; set CUDACXX to one, or configure with -D${OPTIONS}_CUDA=OFF")
  endif()
endif()

if(CUDA_CHOSEN)
  # CMAKE_CUDA_ARCHITECTURES decides, else TORCH_CUDA_ARCH_LIST; the default is nvcc's all-major.
  set(CUDA_ARCHITECTURES all-major)
  if(DEFINED CMAKE_CUDA_ARCHITECTURES AND CMAKE_CUDA_ARCHITECTURES)
    set(CUDA_ARCHITECTURES ${CMAKE_CUDA_ARCHITECTURES})
  elseif(NOT "$ENV{TORCH_CUDA_ARCH_LIST}" STREQUAL "")
    set(CUDA_ARCHITECTURES)
    string(REGEX REPLACE "[ ,;]+" ";" entries "$ENV{TORCH_CUDA_ARCH_LIST}")
    foreach(entry IN LISTS entries)
      if(NOT entry MATCHES "^([0-9]+)\\.([0-9][af]?)(\\+PTX)?$")
        message(FATAL_ERROR "${NAME}: TORCH_CUDA_ARCH_LIST: '${entry}' is not a CUDA architecture; write "
          "for example 8.0;9.0+PTX")
      endif()
      set(number ${CMAKE_MATCH_1}${CMAKE_MATCH_2})
      if(NOT CMAKE_MATCH_3)
        string(APPEND number "-real")
      endif()
      list(APPEND CUDA_ARCHITECTURES ${number})
    endforeach()
  endif()
  enable_language(CUDA)
  set(CUDA_REASON "nvcc ${CMAKE_CUDA_COMPILER_VERSION} for ${CUDA_ARCHITECTURES}")
endif()
