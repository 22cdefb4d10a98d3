# Reads who the project is: NAME, VERSION, and OPTIONS, with which the names of its options start.

# Each line of project.env, KEY="value", becomes a variable.
file(STRINGS project.env lines REGEX "^PROJECT_")
foreach(line IN LISTS lines)
  string(REGEX MATCH "^([A-Z_]+)=\"(.*)\"$" line "${line}")
  set(${CMAKE_MATCH_1} "${CMAKE_MATCH_2}")
endforeach()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS project.env)
set(NAME ${PROJECT_NAMESPACE})
string(TOUPPER ${NAME} OPTIONS)
file(STRINGS ${PROJECT_PACKAGE}/_version.py VERSION REGEX "^__version__")
string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" VERSION "${VERSION}")
