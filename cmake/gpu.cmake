# The source of the kernels of the target gpu: the headers of src/numerics and the files of
# src/targets/gpu/kernels as one text, which the driver compiles at run time.
set(GQAC_GPU_SOURCES)
foreach(header contract dialect math convert)
  list(APPEND GQAC_GPU_SOURCES ${PROJECT_SOURCE_DIR}/src/numerics/${header}.h)
endforeach()
foreach(header language values)
  list(APPEND GQAC_GPU_SOURCES ${PROJECT_SOURCE_DIR}/src/targets/gpu/kernels/${header}.h)
endforeach()
foreach(kernels weights products nbits attention rows elementwise moe)
  list(APPEND GQAC_GPU_SOURCES ${PROJECT_SOURCE_DIR}/src/targets/gpu/kernels/${kernels}.cl)
endforeach()
add_custom_command(
  OUTPUT ${GQAC_GENERATED}/gpu_source.c
  COMMAND ${CMAKE_COMMAND} "-DSOURCES=${GQAC_GPU_SOURCES}" -DOUTPUT=${GQAC_GENERATED}/gpu_source.c
          -P ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
  DEPENDS ${GQAC_GPU_SOURCES} ${PROJECT_SOURCE_DIR}/cmake/embed.cmake VERBATIM)
