# The tool in variants: some sources are compiled again with other definitions, and their objects
# stand before the library on the link line, so that the rest is the library as it is. Sources of
# src/targets/cpu/level are compiled again for every level.
add_library(gqac_cli_objects OBJECT ${GQAC_CLI_SOURCES} ${GQAC_GENERATED}/verb_table.c)
target_include_directories(gqac_cli_objects PRIVATE ${PROJECT_SOURCE_DIR}/src
  ${PROJECT_SOURCE_DIR}/include ${GQAC_GENERATED})
add_dependencies(gqac_cli_objects gqac_commit)
target_link_libraries(gqac_cli_objects PRIVATE gqac_flags PkgConfig::JANSSON)
if(TARGET gqac_serve)
  target_compile_definitions(gqac_cli_objects PRIVATE GQAC_SERVE)
endif()
if(TARGET gqac_remote)
  target_compile_definitions(gqac_cli_objects PRIVATE GQAC_REMOTE)
endif()

# Those of the further arguments that hold the pattern.
function(gqac_holding pattern found)
  set(all "")
  foreach(source IN LISTS ARGN)
    file(STRINGS ${source} lines REGEX "${pattern}" LIMIT_COUNT 1)
    if(lines)
      list(APPEND all ${source})
    endif()
  endforeach()
  set(${found} ${all} PARENT_SCOPE)
endfunction()

# controls/NAME: the tool with the sources that hold the pattern compiled with the definitions.
function(gqac_variant name pattern)
  gqac_holding("${pattern}" sources ${GQAC_SOURCES})
  gqac_holding("${pattern}" leveled ${GQAC_LEVEL_SOURCES})
  if(NOT sources AND NOT leveled)
    message(FATAL_ERROR "no source holds ${pattern}")
  endif()
  set(objects "")
  if(leveled)
    gqac_level_objects(control_${name} objects SOURCES ${leveled} DEFINITIONS ${ARGN})
  endif()
  add_executable(control_${name} ${sources} ${objects} $<TARGET_OBJECTS:gqac_cli_objects>)
  set_target_properties(control_${name} PROPERTIES
    OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/controls)
  target_compile_definitions(control_${name} PRIVATE ${ARGN})
  target_include_directories(control_${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(control_${name} PRIVATE $<TARGET_NAME_IF_EXISTS:gqac_serve>
    $<TARGET_NAME_IF_EXISTS:gqac_remote> gqac gqac_flags
    PkgConfig::JANSSON m)
endfunction()

# Negative controls: one rule of the numerics contract is broken on purpose, by the macro
# GQAC_CONTROL_<NAME> in the sources of each target that has the rule.
foreach(control MASK_OFF_BY_ONE UNROUNDED_CHUNK KERNEL_BY_ROWS THREAD_SPLIT CPU_SPLIT_BY_THREADS
    BF16_BY_ROWS PACKED_BEGIN ROTARY_BATCH STALE_BLOCK STORE_MISSES GPU_SPLIT_BY_GROUPS
    WINDOW_EARLY CODES_BY_ROWS SCALE_BY_ROWS OTHER_ROW
    GPU_MERGE_DESCENDING GPU_ROWS_AFTER_END GPU_PIECES_DESCEND
    GPU_LAST_OF_EQUAL GPU_STALE_BLOCKS GPU_STALE_COPY GPU_WARP_MAXIMUM)
  gqac_variant(${control} "GQAC_CONTROL_${control}" GQAC_CONTROL_${control})
endforeach()

# controls/NAME.test: a program of the tests with such a defect, which it must find
# (runtime/check_controls.sh, python/test_tokenizer.py).
function(gqac_broken_test control main)
  gqac_holding("GQAC_CONTROL_${control}" sources ${GQAC_SOURCES})
  if(NOT sources)
    message(FATAL_ERROR "no source holds GQAC_CONTROL_${control}")
  endif()
  add_executable(broken_${control} ${main} ${sources})
  set_target_properties(broken_${control} PROPERTIES
    OUTPUT_NAME ${control}.test RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/controls)
  target_compile_definitions(broken_${control} PRIVATE GQAC_CONTROL_${control})
  target_link_libraries(broken_${control} PRIVATE gqac_unit gqac_hostile_static ${MPFR})
endfunction()
gqac_broken_test(TOP_P_BOUNDARY llm/test_sampler.c)
gqac_broken_test(PUBLISH_FAILED runtime/test_step.c)
gqac_broken_test(STALE_BLOCK store/test_store.c)
gqac_broken_test(STORE_DRAFTS store/test_sharing.c)
gqac_broken_test(ACCEPT_WRONG llm/test_speculation.c)
gqac_broken_test(NO_REWIND llm/test_speculation.c)
gqac_broken_test(PARTIAL_CHARACTER llm/test_constraint.c)
gqac_broken_test(OTHER_ROW sched/test_random.c)
gqac_broken_test(SCHED_ACCEPT_WRONG sched/test_random.c)
gqac_broken_test(SCHED_NO_REWIND sched/test_random.c)
gqac_broken_test(BPE_TIES text/tool_text.c)

# The same, where kernels that the test includes have the defect.
function(gqac_broken_kernels name main)
  add_executable(broken_${name} ${main})
  set_target_properties(broken_${name} PROPERTIES
    OUTPUT_NAME ${name}.test RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/controls)
  target_compile_definitions(broken_${name} PRIVATE ${ARGN})
  target_link_libraries(broken_${name} PRIVATE gqac_unit gqac_hostile)
endfunction()
gqac_broken_kernels(TENSOR_FRAGMENT cuda/test_tensor.c CONTROL_TENSOR_FRAGMENT)
gqac_broken_kernels(ATTEND_FRAGMENT cuda/test_attend.c CONTROL_TENSOR_FRAGMENT)
gqac_broken_kernels(ATTEND_ALL_SEEN cuda/test_attend.c CONTROL_TENSOR_ALL_SEEN)
gqac_broken_kernels(ATTEND_WARP_MAXIMUM cuda/test_attend.c CONTROL_GPU_WARP_MAXIMUM)

# Small tiles: short sequences cross many of them. Sources see the constants through contract.h; a
# second header that used them would hide who does.
file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.h)
list(FILTER headers EXCLUDE REGEX "/numerics/contract\\.h$")
gqac_holding("GQAC_KEY_(TILE|SPLIT)" hidden ${headers})
if(hidden)
  message(FATAL_ERROR "the key tile and split belong to contract.h and sources, not to ${hidden}")
endif()
if(NOT GQAC_KEY_TILE AND NOT GQAC_KEY_SPLIT)
  gqac_variant(SMALL_TILES "GQAC_KEY_(TILE|SPLIT)" GQAC_KEY_TILE=4 GQAC_KEY_SPLIT=8)
endif()

# Files of a prefix store whose names collide.
gqac_variant(SHORT_DIGEST "GQAC_DIGEST_BITS" GQAC_DIGEST_BITS=4)

# Shuffled blocks: those of a sequence lie scattered in memory, never side by side.
gqac_variant(SHUFFLED_BLOCKS "GQAC_SHUFFLED_BLOCKS" GQAC_SHUFFLED_BLOCKS)
add_executable(test_kv_shuffled kv/test_slabs.c ${PROJECT_SOURCE_DIR}/src/kv/slabs.c)
target_compile_definitions(test_kv_shuffled PRIVATE GQAC_SHUFFLED_BLOCKS)
target_link_libraries(test_kv_shuffled PRIVATE gqac_unit gqac_hostile_static)
add_test(NAME kv_shuffled COMMAND test_kv_shuffled)
add_dependencies(c_tests test_kv_shuffled)
