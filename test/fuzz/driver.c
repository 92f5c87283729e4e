/* The entry points of libFuzzer, which AFL++ takes as well, for one target: FUZZ_TARGET. */
#include "fuzz/fuzz.h"

#include <string.h>

extern const fuzz_target FUZZ_TARGET;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    (void)FUZZ_TARGET.run(data, size);
    return 0;
}

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);
size_t fuzz_change(uint8_t *data, size_t size, size_t most) {
    return LLVMFuzzerMutate(data, size, most);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
    if (!FUZZ_TARGET.mutate || seed % 4 == 0)
        return LLVMFuzzerMutate(data, size, most);
    return FUZZ_TARGET.mutate(data, size, most, seed);
}
