# Writes to OUTPUT a C string for each of NAMES: the files of the list of that name, one after
# another.
set(text "")
foreach(name ${NAMES})
  set(bytes "")
  foreach(source ${${name}})
    file(READ ${source} hex HEX)
    string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
    string(APPEND bytes "${hex}\n")
  endforeach()
  string(APPEND text "extern const char ${name}[];\nconst char ${name}[] = {\n${bytes}0};\n")
endforeach()
file(WRITE ${OUTPUT} "${text}")
