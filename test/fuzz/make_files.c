/* Writes the legal files of the known models, as seeds: make_files FOLDER. */
#include "fuzz/fuzz.h"

int main(int argc, char **argv) {
    if (argc != 2)
        return 2;
    fuzz_write_files(argv[1]);
    return 0;
}
