# The sources of the kernels of the target gpu, which the driver compiles at run time: the headers of
# src/numerics and the files of src/targets/gpu/kernels as one text, as a second one those of
# attention alone, for programs that have kernels of their own for a size of heads, and as two more those
# of products and of attention in tensor cores.
set(folder ${PROJECT_SOURCE_DIR}/src/targets/gpu/kernels)
set(common)
foreach(header contract dialect math convert)
  list(APPEND common ${PROJECT_SOURCE_DIR}/src/numerics/${header}.h)
endforeach()
list(APPEND common ${folder}/language.h ${folder}/values.h)
set(attention)
foreach(kernels attend_common attend_few attend_many attention)
  list(APPEND attention ${folder}/${kernels}.cl)
endforeach()
set(gpu_source ${common})
foreach(kernels fours weights products nbits)
  list(APPEND gpu_source ${folder}/${kernels}.cl)
endforeach()
list(APPEND gpu_source ${attention})
foreach(kernels rows heads order elementwise chain moe)
  list(APPEND gpu_source ${folder}/${kernels}.cl)
endforeach()
set(gpu_attention_source ${common} ${attention})
set(gpu_tensor_source ${common} ${folder}/weights.cl ${folder}/factors.cl ${folder}/tensor.cl)
set(gpu_attend_tensor_source ${common})
foreach(kernels factors attend_common attend_stage attend_tensor attend_prompt)
  list(APPEND gpu_attend_tensor_source ${folder}/${kernels}.cl)
endforeach()
add_custom_command(
  OUTPUT ${GQAC_GENERATED}/gpu_source.c
  COMMAND ${CMAKE_COMMAND}
          "-DNAMES=gpu_source;gpu_attention_source;gpu_tensor_source;gpu_attend_tensor_source"
          "-Dgpu_source=${gpu_source}" "-Dgpu_attention_source=${gpu_attention_source}"
          "-Dgpu_tensor_source=${gpu_tensor_source}"
          "-Dgpu_attend_tensor_source=${gpu_attend_tensor_source}" -DOUTPUT=${GQAC_GENERATED}/gpu_source.c
          -P ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
  DEPENDS ${gpu_source} ${gpu_attend_tensor_source} ${folder}/tensor.cl
          ${PROJECT_SOURCE_DIR}/cmake/embed.cmake VERBATIM)
