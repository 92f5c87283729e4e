/* Defects that tools/analyse.py requires each tool to find. A comment names the tool and its check.
 * No program contains this source. */
#include <stdlib.h>
#include <string.h>

int null_dereference(void);
void leak(size_t n);
int past_end(int i);
int unchecked(const char *text);

int null_dereference(void) {
    int *p = malloc(sizeof *p);
    *p = 1; /* gcc:analyzer-possible-null-dereference */
    const int value = *p;
    free(p);
    return value;
}

void leak(size_t n) {
    char *text = malloc(n);
    if (text)
        memset(text, 0, n);
} /* gcc:analyzer-malloc-leak cppcheck:memleak */

int past_end(int i) {
    const int list[4] = {1, 2, 3, 4};
    return i > 4 ? 0 : list[4]; /* cppcheck:arrayIndexOutOfBounds */
}

int unchecked(const char *text) {
    const char *no = strerror(1); /* clang-tidy:concurrency-mt-unsafe */
    if (strcmp(text, no))         /* clang-tidy:bugprone-suspicious-string-compare */
        return 0;
    return atoi(text); /* clang-tidy:cert-err34-c */
}
