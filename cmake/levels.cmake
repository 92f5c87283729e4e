# The sources of src/targets/cpu/level, once for each instruction set of the machine's family. The
# level's name is CPU_LEVEL; the plain one is the numerics contract in C. GQAC_LEVEL_OBJECTS are
# linked into the library.
#
# With sanitizers a level takes minutes to compile, most of it in two files. Those builds leave out
# what they would not run.
set(GQAC_BUILD_LEVELS all CACHE STRING "levels of the build: all, machine (without AVX-512 if this machine lacks it), scalar")
if(NOT GQAC_BUILD_LEVELS MATCHES "^(all|machine|scalar)$")
  message(FATAL_ERROR "GQAC_BUILD_LEVELS is '${GQAC_BUILD_LEVELS}'; it can be all, machine or scalar")
endif()
set(GQAC_LEVELS scalar)
if(GQAC_BUILD_LEVELS STREQUAL scalar)
  target_compile_definitions(gqac_flags INTERFACE GQAC_ONLY_SCALAR)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND GQAC_LEVELS avx2)
  set(avx512 yes)
  if(GQAC_BUILD_LEVELS STREQUAL machine)
    file(STRINGS /proc/cpuinfo avx512 REGEX "^flags.* avx512f " LIMIT_COUNT 1)
  endif()
  if(avx512)
    list(APPEND GQAC_LEVELS avx512 avx512vnni avx512bf16)
  else()
    target_compile_definitions(gqac_flags INTERFACE GQAC_NO_AVX512)
  endif()
endif()
set(GQAC_LEVEL_FLAGS_scalar $<$<CONFIG:Release>:-O2>)
set(GQAC_LEVEL_FLAGS_avx2 -mavx2 -mfma -mf16c)
set(GQAC_LEVEL_FLAGS_avx512 ${GQAC_LEVEL_FLAGS_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl
  -mprefer-vector-width=512)
set(GQAC_LEVEL_FLAGS_avx512vnni ${GQAC_LEVEL_FLAGS_avx512} -mavx512vnni)
set(GQAC_LEVEL_FLAGS_avx512bf16 ${GQAC_LEVEL_FLAGS_avx512vnni} -mavx512bf16)

# Object libraries NAME_<level> of such sources; `objects` in the caller becomes all their objects.
function(gqac_level_objects name objects)
  cmake_parse_arguments(arg "" "" "SOURCES;DEFINITIONS" ${ARGN})
  set(all "")
  foreach(level IN LISTS GQAC_LEVELS)
    add_library(${name}_${level} OBJECT ${arg_SOURCES})
    target_compile_definitions(${name}_${level} PRIVATE CPU_LEVEL=${level} ${arg_DEFINITIONS})
    target_compile_options(${name}_${level} PRIVATE ${GQAC_LEVEL_FLAGS_${level}})
    target_include_directories(${name}_${level}
      PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(${name}_${level} PRIVATE gqac_flags)
    list(APPEND all $<TARGET_OBJECTS:${name}_${level}>)
  endforeach()
  set(${objects} ${all} PARENT_SCOPE)
endfunction()

file(GLOB GQAC_LEVEL_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/targets/cpu/level/*.c)
if(GQAC_FUZZ) # kernels compute the address of memory to prefetch, and use it only if there is some
  set_source_files_properties(${GQAC_LEVEL_SOURCES} PROPERTIES
    COMPILE_OPTIONS -fno-sanitize=pointer-overflow)
endif()
gqac_level_objects(gqac_level GQAC_LEVEL_OBJECTS SOURCES ${GQAC_LEVEL_SOURCES})
