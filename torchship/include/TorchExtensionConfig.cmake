# find_package(TorchExtension) defines torch_extension(TARGET PACKAGE VERSION), which lets a target
# include torch_extension.h, and sets the package and the version that the header records.
function(torch_extension target package version)
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_FUNCTION_LIST_DIR})
  target_compile_definitions(${target} PRIVATE
    TORCH_EXTENSION_PACKAGE=${package} TORCH_EXTENSION_VERSION=${version})
endfunction()
