/* Entries of the cache: a header, and the code. */
#include "targets/gpu/cache.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/file.h"
#include "base/log.h"
#include "targets/gpu/driver.h"

enum { MOST = 256 << 20 /* bytes of an entry */ };

typedef struct header {
    char magic[16];
    gpu_key key;
    uint64_t bytes;          /* of the code */
    XXH128_canonical_t hash; /* of the code: finds damage; 10 MB take 2 ms, with SHA-256 50 ms */
} header;
_Static_assert(sizeof(header) == 72, "the header has no padding");
static const char magic[16] = "gqac kernels 2\n";

/* ---- names -------------------------------------------------------------------- */

gpu_key gpu_cache_key(int n, const char *const *texts) {
    gpu_key key;
    gqac_sha256 hash;
    gqac_sha256_init(&hash);
    for (int i = 0; i < n; i++)
        gqac_sha256_update(&hash, texts[i], strlen(texts[i]) + 1);
    gqac_sha256_final(&hash, key.digest);
    return key;
}

static XXH128_canonical_t hash_of(const void *code, size_t bytes) {
    XXH128_canonical_t hash;
    XXH128_canonicalFromHash(&hash, XXH3_128bits(code, bytes));
    return hash;
}

/* Sets the path of the folder; `make` creates it. False: there is no cache. */
static bool find_folder(char path[PATH_MAX], bool make) {
    const char *own = getenv("GQAC_CACHE"), *base = getenv("XDG_CACHE_HOME");
    const char *below = "/gqac";
    if (own) {
        if (!*own || strcmp(own, "off") == 0)
            return false;
        base = own;
        below = "";
    } else if (!base || *base != '/') {
        base = getenv("HOME");
        below = "/.cache/gqac";
    }
    if (!base || !*base || snprintf(path, PATH_MAX, "%s%s", base, below) >= PATH_MAX)
        return false;
    /* all that is missing; a failure shows when the entry is written */
    for (char *slash = strchr(path + 1, '/'); make && slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0700);
        *slash = '/';
    }
    if (make)
        mkdir(path, 0700);
    return true;
}

bool gpu_cache_on(void) {
    char path[PATH_MAX];
    return find_folder(path, false);
}

void gpu_notice_give(gpu_notice *notice, const char *device) {
    if (!notice->given)
        gqac_log_line(notice->log, GQAC_LOG_WARNING, "compiling kernels for %s, %s", device,
                      gpu_cache_on() ? "once; this can take a minute"
                                     : "at each start, because they are not kept (GQAC_CACHE)");
    notice->given = true;
}

static bool find_entry(const gpu_key *key, char path[PATH_MAX], bool make) {
    if (!find_folder(path, make))
        return false;
    char name[65];
    gqac_sha256_hex(key->digest, name);
    const size_t at = strlen(path);
    return snprintf(path + at, PATH_MAX - at, "/%s.kernels", name) < (int)(PATH_MAX - at);
}

/* ---- entries ------------------------------------------------------------------ */

static bool read_all(int fd, void *to, size_t bytes) {
    for (size_t at = 0; at < bytes;) {
        const ssize_t n = read(fd, (char *)to + at, bytes - at);
        if (n <= 0)
            return false;
        at += (size_t)n;
    }
    return true;
}

/* The code of an open file, which may hold anything. */
static void *read_entry(int fd, const gpu_key *key, size_t *bytes) {
    struct stat about;
    header h;
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode) || about.st_uid != geteuid() ||
        !read_all(fd, &h, sizeof h) || memcmp(h.magic, magic, sizeof magic) != 0 ||
        memcmp(&h.key, key, sizeof *key) != 0 || h.bytes == 0 || h.bytes > MOST ||
        (uint64_t)about.st_size != sizeof h + h.bytes)
        return NULL;
    void *code = malloc((size_t)h.bytes);
    if (!code)
        return NULL;
    bool whole = read_all(fd, code, (size_t)h.bytes);
    if (whole) {
        const XXH128_canonical_t found = hash_of(code, (size_t)h.bytes);
        whole = memcmp(&found, &h.hash, sizeof found) == 0;
    }
    if (!whole) {
        free(code);
        return NULL;
    }
    *bytes = (size_t)h.bytes;
    return code;
}

void *gpu_cache_read(const gpu_key *key, size_t *bytes) {
    char path[PATH_MAX];
    if (!find_entry(key, path, false))
        return NULL;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return NULL;
    void *code = read_entry(fd, key, bytes);
    close(fd);
    return code;
}

void gpu_cache_write(const gpu_key *key, const void *code, size_t bytes) {
    char path[PATH_MAX];
    gqac_writer *writer;
    header h = {.key = *key, .bytes = bytes};
    if (bytes == 0 || bytes > MOST || !find_entry(key, path, true) ||
        gqac_writer_open(path, &writer, NULL) != GQAC_OK)
        return;
    memcpy(h.magic, magic, sizeof magic);
    h.hash = hash_of(code, bytes);
    if (gqac_writer_write(writer, &h, sizeof h, NULL) == GQAC_OK &&
        gqac_writer_write(writer, code, bytes, NULL) == GQAC_OK)
        gqac_writer_commit(writer, NULL);
    else
        gqac_writer_abort(writer);
}
