# Builds the project as one shared object, kernels and glue, and installs it with its CMake package.
#
# Include Names.cmake and call project() before. The target is NAME::NAME; the options are NAME_DOOR
# and so on. Paths of the project are relative to its CMakeLists.txt.
include(CMakeDependentOption)
include(CMakePackageConfigHelpers)
include(CTest)
include(GNUInstallDirs)

set(${OPTIONS}_DOOR "AUTO" CACHE STRING "How the op speaks to torch: stable (torch >= 2.10), aten, or AUTO")
set(${OPTIONS}_CUDA "AUTO" CACHE STRING "CUDA kernels: ON, OFF, or AUTO: where torch is a CUDA build and nvcc is found")
set_property(CACHE ${OPTIONS}_DOOR PROPERTY STRINGS AUTO stable aten)
set_property(CACHE ${OPTIONS}_CUDA PROPERTY STRINGS AUTO ON OFF)
cmake_dependent_option(${OPTIONS}_EXAMPLES "Build examples/cpp and test it" ON "BUILD_TESTING" OFF)
set(DOOR ${${OPTIONS}_DOOR})
set(CUDA ${${OPTIONS}_CUDA})
if(NOT EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/csrc/kernels/cuda)
  set(CUDA OFF)
endif()

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()

include(${TORCHSHIP}/cmake/Torch.cmake)
include(${TORCHSHIP}/cmake/Door.cmake)
include(${TORCHSHIP}/cmake/Cuda.cmake)

set(SOURCES)
set(LINKED)
set(TORCHSHIP_INCLUDE ${TORCHSHIP}/include)
foreach(folder ${TORCHSHIP_INCLUDE}/torchship ${TORCHSHIP_INCLUDE}/torchship/torch_${DOOR_CHOSEN})
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cpp)
  list(APPEND SOURCES ${sources})
endforeach()
file(GLOB_RECURSE sources CONFIGURE_DEPENDS csrc/ops/*.cpp csrc/ops/*.cc csrc/ops/*.cxx)
list(APPEND SOURCES ${sources})
foreach(device CPU CUDA)
  string(TOLOWER ${device} folder)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS csrc/kernels/${folder}/*.cpp csrc/kernels/${folder}/*.cc
    csrc/kernels/${folder}/*.cxx csrc/kernels/${folder}/*.cu)
  if(sources AND (device STREQUAL "CPU" OR CUDA_CHOSEN))
    list(APPEND SOURCES ${sources})
    list(APPEND LINKED PROJECT_LINKED_${device})
  endif()
endforeach()
configure_file(${TORCHSHIP}/cmake/version.cpp.in version.cpp @ONLY)

add_library(${NAME} SHARED ${SOURCES} ${CMAKE_CURRENT_BINARY_DIR}/version.cpp)
add_library(${NAME}::${NAME} ALIAS ${NAME})
set_target_properties(${NAME} PROPERTIES
  CXX_STANDARD ${TORCH_CXX_STANDARD}
  CXX_STANDARD_REQUIRED ON
  CXX_EXTENSIONS OFF
  CXX_VISIBILITY_PRESET hidden
  VISIBILITY_INLINES_HIDDEN ON
  INSTALL_RPATH "${TORCH_FOLDER}/lib"
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
target_compile_definitions(${NAME} PRIVATE ${LINKED} ${DOOR_DEFINITIONS})
target_compile_options(${NAME} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wall>)
target_link_options(${NAME} PRIVATE -Wl,-z,defs)
target_include_directories(${NAME} PRIVATE ${TORCHSHIP_INCLUDE} csrc)
target_include_directories(${NAME} PUBLIC
  $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(${NAME} PUBLIC cxx_std_${TORCH_CXX_STANDARD})
target_link_libraries(${NAME} PUBLIC torch_extension_torch PRIVATE ${DOOR_LIBRARIES})
if(CUDA_CHOSEN)
  set_target_properties(${NAME} PROPERTIES
    CUDA_STANDARD 17
    CUDA_STANDARD_REQUIRED ON
    CUDA_VISIBILITY_PRESET hidden
    CUDA_RUNTIME_LIBRARY Static
    CUDA_ARCHITECTURES "${CUDA_ARCHITECTURES}")
endif()
message(STATUS "${NAME} ${PROJECT_VERSION}: torch ${Torch_VERSION}, ${DOOR_CHOSEN} door, "
  "CUDA kernels: ${CUDA_REASON}")

install(TARGETS ${NAME} EXPORT ${NAME}Targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/include)
  install(DIRECTORY include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()
set(CONFIG_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/${NAME})
install(EXPORT ${NAME}Targets NAMESPACE ${NAME}:: DESTINATION ${CONFIG_DIR})
configure_package_config_file(${TORCHSHIP}/cmake/Config.cmake.in ${NAME}Config.cmake
  INSTALL_DESTINATION ${CONFIG_DIR})
write_basic_package_version_file(${NAME}ConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${CMAKE_CURRENT_BINARY_DIR}/${NAME}Config.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/${NAME}ConfigVersion.cmake
  ${TORCHSHIP}/cmake/Torch.cmake
  DESTINATION ${CONFIG_DIR})
