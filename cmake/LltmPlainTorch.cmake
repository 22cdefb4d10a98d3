# torch's headers and libraries as the target lltm_torch, without find_package(Torch).
#
# find_package(Torch) of a CUDA build of torch wants a whole CUDA toolkit of torch's own version,
# which PyPI's wheels do not bring. Neither our library nor a program that uses it needs one.
#
# lltm_find_torch_root(VARIABLE): the folder of the torch that CMAKE_PREFIX_PATH names, or "".
# lltm_plain_torch(ROOT): makes lltm_torch, sets Torch_VERSION and LLTM_TORCH_HAS_CUDA.
function(lltm_find_torch_root variable)
  set(${variable} "" PARENT_SCOPE)
  foreach(prefix IN LISTS Torch_DIR CMAKE_PREFIX_PATH)
    foreach(folder "" /Torch /share/cmake/Torch)
      if(EXISTS "${prefix}${folder}/TorchConfigVersion.cmake")
        get_filename_component(root "${prefix}${folder}/../../.." ABSOLUTE)
        set(${variable} "${root}" PARENT_SCOPE)
        return()
      endif()
    endforeach()
  endforeach()
endfunction()

macro(lltm_plain_torch root)
  include("${root}/share/cmake/Torch/TorchConfigVersion.cmake")
  set(Torch_VERSION "${PACKAGE_VERSION}")
  set(TORCH_INSTALL_PREFIX "${root}")
  set(LLTM_TORCH_HAS_CUDA OFF)
  if(EXISTS "${root}/lib/libtorch_cuda.so")
    set(LLTM_TORCH_HAS_CUDA ON)
  endif()
  file(STRINGS "${root}/share/cmake/Torch/TorchConfig.cmake" lltm_abi
    REGEX "_GLIBCXX_USE_CXX11_ABI=[01]")
  if("${lltm_abi}" MATCHES "_GLIBCXX_USE_CXX11_ABI=([01])")
    set(lltm_abi ${CMAKE_MATCH_1})
  else()
    set(lltm_abi 1)  # torch 2.7 and newer know no other
  endif()
  if(NOT TARGET lltm_torch)
    add_library(lltm_torch INTERFACE IMPORTED GLOBAL)
    set_target_properties(lltm_torch PROPERTIES
      INTERFACE_INCLUDE_DIRECTORIES "${root}/include;${root}/include/torch/csrc/api/include"
      INTERFACE_COMPILE_DEFINITIONS "_GLIBCXX_USE_CXX11_ABI=${lltm_abi}"
      INTERFACE_LINK_OPTIONS "-Wl,-rpath-link,${root}/lib"
      INTERFACE_LINK_LIBRARIES
        "-Wl,--no-as-needed;${root}/lib/libtorch.so;${root}/lib/libtorch_cpu.so;${root}/lib/libc10.so;-Wl,--as-needed")
  endif()
endmacro()
