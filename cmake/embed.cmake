# Writes the files SOURCES, one after another, to OUTPUT: as the C string gpu_source.
set(bytes "")
foreach(source ${SOURCES})
  file(READ ${source} hex HEX)
  string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
  string(APPEND bytes "${hex}\n")
endforeach()
file(WRITE ${OUTPUT} "extern const char gpu_source[];
const char gpu_source[] = {
${bytes}0};
")
