# Writes OUT, the header with the commit of SOURCE, for `gqac version`; "-dirty": with changes that are
# not committed; "": no git, or no repository. A header that says the same is left as it is.
cmake_minimum_required(VERSION 3.25)
if(EXISTS ${SOURCE}/.git) # else git would find a repository around SOURCE
  execute_process(COMMAND git describe --always --dirty --exclude=* --abbrev=12
    WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE commit ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#define GQAC_COMMIT \"@commit@\"\n" @ONLY)
