# Manual pages and the completion of bash, which the tool prints from its own tables of flags. A tool
# that is made for another machine cannot print them here, and one with sanitizers is not installed.
if(CMAKE_CROSSCOMPILING OR GQAC_SANITIZE)
  return()
endif()

set(GQAC_MANUAL ${CMAKE_CURRENT_BINARY_DIR}/manual)
file(GLOB verbs CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cli/verb_*.c)
list(TRANSFORM verbs REPLACE ".*/verb_(.*)\\.c$" "\\1")
set(pages ${GQAC_MANUAL}/man1/gqac.1)
set(commands COMMAND gqac_tool man > ${GQAC_MANUAL}/man1/gqac.1)
foreach(verb IN LISTS verbs)
  list(APPEND pages ${GQAC_MANUAL}/man1/gqac-${verb}.1)
  list(APPEND commands COMMAND gqac_tool man ${verb} > ${GQAC_MANUAL}/man1/gqac-${verb}.1)
endforeach()
file(MAKE_DIRECTORY ${GQAC_MANUAL}/man1)
add_custom_command(
  OUTPUT ${pages} ${GQAC_MANUAL}/gqac
  ${commands}
  COMMAND gqac_tool completion > ${GQAC_MANUAL}/gqac
  DEPENDS gqac_tool VERBATIM)
add_custom_target(gqac_manual ALL DEPENDS ${pages} ${GQAC_MANUAL}/gqac)
install(DIRECTORY ${GQAC_MANUAL}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR})
install(FILES ${GQAC_MANUAL}/gqac DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
