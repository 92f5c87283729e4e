# Negative controls: the tool with one rule of the numerics contract broken on purpose. A control is
# the macro GQAC_CONTROL_<NAME> in one source; only that source is compiled again, and its object
# stands before the library on the link line, so that the rest is the library as it is.
set(GQAC_CONTROLS MASK_OFF_BY_ONE UNROUNDED_CHUNK KERNEL_BY_ROWS THREAD_SPLIT)

add_library(gqac_cli_objects OBJECT ${GQAC_CLI_SOURCES} ${GQAC_GENERATED}/verb_table.c)
target_include_directories(gqac_cli_objects PRIVATE ${PROJECT_SOURCE_DIR}/src
  ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(gqac_cli_objects PRIVATE gqac_flags PkgConfig::JANSSON)

foreach(control IN LISTS GQAC_CONTROLS)
  set(broken "")
  foreach(source IN LISTS GQAC_SOURCES)
    file(STRINGS ${source} found REGEX "GQAC_CONTROL_${control}" LIMIT_COUNT 1)
    if(found)
      list(APPEND broken ${source})
    endif()
  endforeach()
  if(NOT broken)
    message(FATAL_ERROR "no source holds the negative control ${control}")
  endif()
  add_executable(control_${control} ${broken} $<TARGET_OBJECTS:gqac_cli_objects>)
  set_target_properties(control_${control} PROPERTIES
    OUTPUT_NAME ${control} RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/controls)
  target_compile_definitions(control_${control} PRIVATE GQAC_CONTROL_${control})
  target_include_directories(control_${control} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(control_${control} PRIVATE gqac gqac_flags PkgConfig::JANSSON m)
endforeach()
