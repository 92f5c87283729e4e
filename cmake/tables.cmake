# Tables that are made from file names: one file is one row, and nothing else lists it.

# Writes a table of the symbols PREFIX<stem> for a list of stems, only when it changed.
function(gqac_write_table output header type prefix table count)
  set(declarations "")
  set(rows "")
  foreach(stem IN LISTS ARGN)
    string(APPEND declarations "extern const ${type} ${prefix}${stem};\n")
    string(APPEND rows "    &${prefix}${stem},\n")
  endforeach()
  list(LENGTH ARGN n)
  set(text "/* Made by CMake from the names of the files. */\n#include \"${header}\"\n\n")
  string(APPEND text "${declarations}\nconst ${type} *const ${table}[] = {\n${rows}    NULL,\n};\n")
  if(count)
    string(APPEND text "const int ${count} = ${n};\n")
  endif()
  file(CONFIGURE OUTPUT ${output} CONTENT "${text}" @ONLY)
endfunction()

# The same of files: the stem of each is its name without PREFIX of the file and its extension.
function(gqac_file_table output file_prefix header type prefix table count)
  set(stems "")
  foreach(file IN LISTS ARGN)
    get_filename_component(stem ${file} NAME_WE)
    if(file_prefix)
      string(REGEX REPLACE "^${file_prefix}" "" stem ${stem})
    endif()
    list(APPEND stems ${stem})
  endforeach()
  list(SORT stems)
  gqac_write_table(${output} ${header} ${type} ${prefix} ${table} "${count}" ${stems})
endfunction()

# src/ops/<stem>.c but op.c and *_shared.c: gqac_op_<stem>.
function(gqac_op_table output)
  file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/ops/*.c)
  list(FILTER files EXCLUDE REGEX "/op\\.c$|_shared\\.c$")
  gqac_file_table(${output} "" ops/op.h gqac_op gqac_op_ gqac_op_table gqac_op_count ${files})
endfunction()

# src/cli/verb_<stem>.c: gqac_cli_verb_<stem>.
function(gqac_verb_table output)
  file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cli/verb_*.c)
  gqac_file_table(${output} verb_ cli/cli.h gqac_cli_verb gqac_cli_verb_ gqac_cli_verbs "" ${files})
endfunction()

# test/fuzz/fuzz_<stem>.c: fuzz_target_<stem>. FILES becomes the list of these files: those whose
# library this build has.
function(gqac_fuzz_table output files)
  file(GLOB found CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/test/fuzz/fuzz_*.c)
  if(NOT TARGET gqac_serve)
    list(FILTER found EXCLUDE REGEX "/fuzz_http\\.c$")
  endif()
  if(NOT TARGET gqac_remote)
    list(FILTER found EXCLUDE REGEX "/fuzz_redis\\.c$")
  endif()
  gqac_file_table(${output} fuzz_ fuzz/fuzz.h fuzz_target fuzz_target_ fuzz_targets "" ${found})
  set(${files} ${found} PARENT_SCOPE)
endfunction()

# What the rows of fuzz targets need besides the library: the provider for ONNX Runtime with a fake of the
# runtime, the server and the remote tier.
function(gqac_fuzz_links target scope)
  get_target_property(provider gqac_ort SOURCES)
  list(TRANSFORM provider PREPEND ${PROJECT_SOURCE_DIR}/integrations/ort/)
  target_sources(${target} PRIVATE ${provider} ${PROJECT_SOURCE_DIR}/test/ort/fake_api.c
    ${PROJECT_SOURCE_DIR}/test/ort/fake_graph.c ${PROJECT_SOURCE_DIR}/test/ort/fake_session.c)
  foreach(call program_open compile context_create context_create_on) # see fuzz_ep.c
    target_link_options(${target} ${scope} LINKER:--wrap=gqac_${call})
  endforeach()
  if(TARGET gqac_serve)
    target_link_libraries(${target} ${scope} gqac_serve)
    target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/test/fuzz/served.c)
    target_link_options(${target} ${scope} LINKER:--wrap=getrandom) # see served.h
  endif()
  if(TARGET gqac_remote)
    target_link_libraries(${target} ${scope} gqac_remote)
    target_link_options(${target} ${scope} LINKER:--wrap=poll) # see fuzz_redis.c
  endif()
endfunction()
