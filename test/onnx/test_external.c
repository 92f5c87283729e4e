/* External data: spellings of locations, kinds of files, links, roots, keys, ranges. For every
 * refused case a similar one in the same folder is accepted, so a refusal has no other cause. */
#include "unit.h"
#include "wire.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static const float data[8] = {1, 2, 3, 4, 5, 6, 7, 8};

/* y = x + w, where w [4] is external. */
static gqac_str model_of(gqac_str w) {
    gqac_str graph = {0};
    wire_message(&graph, 1, wire_node("Add", "x w", "y"));
    wire_message(&graph, 5, w);
    wire_message(&graph, 11, wire_value("x", 1, "B,4"));
    wire_message(&graph, 12, wire_value("y", 1, "B,4"));
    return wire_model(graph);
}

static gqac_str at_location(const char *location) {
    return model_of(wire_external("w", 1, "4", location, "0", "16"));
}

#define REFUSED(model, word) CU_ASSERT(wire_expect((model), GQAC_INVALID_MODEL, (word)))
#define TAKEN(model)         CU_ASSERT(wire_expect((model), GQAC_OK, ""))

/* The folder of the model is <folder>/m; next to it are files that must not be reached. */
static void set_up(void) {
    wire_clean();
    wire_write("w.bin", data, sizeof data);
    CU_ASSERT_EQUAL(mkdir(wire_path("sub"), 0700), 0);
    CU_ASSERT_EQUAL(mkdir(wire_path("sub/deep"), 0700), 0);
    wire_write("sub/w.bin", data, sizeof data);
    wire_write("sub/deep/w.bin", data, sizeof data);
}

/* ---- spellings ---------------------------------------------------------------------------------
 */

static const char *const refused[] = {
    "",
    ".",
    "..",
    "/",
    "./",
    "../",
    "//",
    "w.bin/",
    "sub",
    "sub/",
    "sub/.",
    "sub/..",
    "../w.bin",
    "../../w.bin",
    "../../../../../../../../etc/passwd",
    "/etc/passwd",
    "//etc/passwd",
    "/dev/zero",
    "/proc/self/mem",
    "./../w.bin",
    "sub/../w.bin",
    "sub/../../w.bin",
    "sub/./../../w.bin",
    "sub//../..//w.bin",
    "sub/deep/../../../w.bin",
    "missing/../w.bin",
    "missing/../../w.bin",
    "w.bin/..",
    "w.bin/../w.bin",
    ".../../w.bin",
    "..\\w.bin",
    "sub\\w.bin",
    "\\w.bin",
    "C:\\w.bin",
    "C:/w.bin",
    "%2e%2e/w.bin",
    "..%2fw.bin",
    "~/w.bin",
    "$HOME/w.bin",
    " w.bin",
    "w.bin ",
    "W.BIN",
    "missing.bin",
    "file:///etc/passwd",
    "file:w.bin",
    "w.bin\n",
    "sub/w.bin/x",
    "../gqac",
    "w.bin/.",
    "sub/deep/../w.bin",
};

static void test_spellings(void) {
    static const char *const taken[] = {"w.bin",      "./w.bin",     "sub/w.bin",
                                        "sub//w.bin", "sub/./w.bin", "./sub/deep/w.bin"};
    set_up();
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        REFUSED(at_location(refused[i]), "external data");
        TAKEN(at_location(taken[i % 6]));
    }
    char absolute[256]; /* even if it is the right file */
    snprintf(absolute, sizeof absolute, "%s", wire_path("w.bin"));
    REFUSED(at_location(absolute), "absolute");
    gqac_str w = wire_tensor("w", 1, "4", NULL, 0), entry = {0};
    wire_text(&entry, 1, "location");
    wire_bytes(&entry, 2, "w.bin\0.txt", 10);
    wire_message(&w, 13, entry);
    wire_int(&w, 14, 1);
    REFUSED(model_of(w), "NUL");
}

/* An unusual name is still a name. */
static void test_odd_names(void) {
    static const char *const names[] = {"...", "..w", "w..", "a b",
                                        "%2e", "-rf", "C:w", "\xc3\xa4"};
    set_up();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        wire_write(names[i], data, 16);
        TAKEN(at_location(names[i]));
    }
}

/* ---- kinds of files ---------------------------------------------------------------------------
 * */

static void test_kinds(void) {
    set_up();
    CU_ASSERT_EQUAL(mkfifo(wire_path("fifo"), 0600), 0);
    REFUSED(at_location("fifo"), "regular");
    REFUSED(at_location("sub"), "regular");
    REFUSED(at_location("m.onnx"), "model itself");
    int sock = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", wire_path("sock"));
    CU_ASSERT_EQUAL(bind(sock, (struct sockaddr *)&address, sizeof address), 0);
    REFUSED(at_location("sock"), "external data");
    close(sock);
    if (mknod(wire_path("null"), S_IFCHR | 0600, 1 << 8 | 3) == 0)
        REFUSED(at_location("null"), "external data");
    TAKEN(at_location("w.bin"));
}

static void test_links(void) {
    set_up();
    char outside[] = "/tmp/gqac-outside-XXXXXX";
    int fd = mkstemp(outside);
    CU_ASSERT_EQUAL(write(fd, data, sizeof data), sizeof data);
    close(fd);
    CU_ASSERT_EQUAL(symlink("w.bin", wire_path("inner")), 0);
    CU_ASSERT_EQUAL(symlink(outside, wire_path("outer")), 0);
    CU_ASSERT_EQUAL(symlink("sub", wire_path("folder")), 0);
    CU_ASSERT_EQUAL(symlink("loop", wire_path("loop")), 0);
    CU_ASSERT_EQUAL(symlink("nowhere", wire_path("dangling")), 0);
    CU_ASSERT_EQUAL(symlink("/proc/self/exe", wire_path("magic")), 0);
    TAKEN(at_location("inner")); /* links that stay in the folder */
    TAKEN(at_location("folder/w.bin"));
    REFUSED(at_location("outer"), "leads out");
    REFUSED(at_location("loop"), "link");
    REFUSED(at_location("dangling"), "No such file");
    REFUSED(at_location("magic"), "link");
    TAKEN(at_location("w.bin"));
    CU_ASSERT_EQUAL(link(wire_path("w.bin"), wire_path("hard")), 0);
    REFUSED(at_location("hard"), "hard links");
    REFUSED(at_location("w.bin"), "hard links");
    CU_ASSERT_EQUAL(unlink(wire_path("hard")), 0);
    TAKEN(at_location("w.bin"));
    unlink(outside);
}

static gqac_status with_root(const char *path, const char *root) {
    wire_import *import = wire_import_path(path, root);
    gqac_status status = import->status;
    wire_import_free(import);
    return status;
}

/* A cache as in model hubs: root/snapshots/1/{model,data} are links to root/blobs. */
static void test_root(void) {
    set_up();
    CU_ASSERT_EQUAL(mkdir(wire_path("blobs"), 0700), 0);
    CU_ASSERT_EQUAL(mkdir(wire_path("snapshots"), 0700), 0);
    CU_ASSERT_EQUAL(mkdir(wire_path("snapshots/1"), 0700), 0);
    wire_write("blobs/b1", data, sizeof data);
    gqac_str model = at_location("data");
    wire_write("blobs/b0", model.text, model.length);
    gqac_str_free(&model);
    CU_ASSERT_EQUAL(symlink("../../blobs/b0", wire_path("snapshots/1/m.onnx")), 0);
    CU_ASSERT_EQUAL(symlink("../../blobs/b1", wire_path("snapshots/1/data")), 0);
    char path[256];
    snprintf(path, sizeof path, "%s", wire_path("snapshots/1/m.onnx"));
    CU_ASSERT_EQUAL(with_root(path, NULL), GQAC_OK); /* such a cache is recognised by its layout */
    CU_ASSERT_EQUAL(with_root(path, wire_folder()), GQAC_OK);
    CU_ASSERT_EQUAL(with_root(path, wire_path("snapshots")), GQAC_INVALID_MODEL);
    CU_ASSERT_EQUAL(with_root(path, wire_path("snapshots/1")), GQAC_INVALID_MODEL);
    CU_ASSERT_EQUAL(with_root(path, wire_path("nowhere")), GQAC_IO);
    CU_ASSERT_EQUAL(link(wire_path("blobs/b1"), wire_path("blobs/b2")), 0);
    CU_ASSERT_EQUAL(with_root(path, wire_folder()), GQAC_OK); /* hard links are also allowed */
    /* a link to a file outside the root */
    CU_ASSERT_EQUAL(unlink(wire_path("snapshots/1/data")), 0);
    CU_ASSERT_EQUAL(symlink("/etc/passwd", wire_path("snapshots/1/data")), 0);
    CU_ASSERT_EQUAL(with_root(path, NULL), GQAC_INVALID_MODEL);
    CU_ASSERT_EQUAL(with_root(path, wire_folder()), GQAC_INVALID_MODEL);
    CU_ASSERT_EQUAL(unlink(wire_path("snapshots/1/data")), 0);
    CU_ASSERT_EQUAL(symlink("/proc/self/fd/0", wire_path("snapshots/1/data")), 0);
    CU_ASSERT_EQUAL(with_root(path, wire_folder()), GQAC_INVALID_MODEL);
    /* a root elsewhere: locations are below it */
    wire_write("blobs/data", data, sizeof data);
    CU_ASSERT_EQUAL(with_root(path, wire_path("blobs")), GQAC_OK);
    CU_ASSERT_EQUAL(with_root(path, wire_path("sub")), GQAC_INVALID_MODEL);
}

static void test_model_path(void) {
    set_up();
    CU_ASSERT_EQUAL(with_root(wire_path("none.onnx"), NULL), GQAC_IO);
    CU_ASSERT_EQUAL(with_root(wire_path("sub"), NULL), GQAC_IO);
    CU_ASSERT_EQUAL(mkfifo(wire_path("fifo"), 0600), 0);
    CU_ASSERT_EQUAL(with_root(wire_path("fifo"), NULL), GQAC_IO);
    wire_write("empty.onnx", "", 0);
    CU_ASSERT_EQUAL(with_root(wire_path("empty.onnx"), NULL), GQAC_INVALID_MODEL);
}

/* ---- keys and ranges ---------------------------------------------------------------------------
 */

static gqac_str ranged(const char *offset, const char *length) {
    return model_of(wire_external("w", 1, "4", "w.bin", offset, length));
}

static void test_numbers(void) {
    static const char *const wrong[] = {"",
                                        " 0",
                                        "0 ",
                                        "+0",
                                        "-1",
                                        "0x0",
                                        "1e1",
                                        "16.0",
                                        "a",
                                        "18446744073709551616",
                                        "99999999999999999999999"};
    set_up();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        REFUSED(ranged(wrong[i], "16"), "offset");
        REFUSED(ranged("0", wrong[i]), "length");
    }
    TAKEN(ranged("0", "16"));
    TAKEN(ranged("0000000000000000000016", "16"));
    TAKEN(ranged("16", "16")); /* the file has 32 bytes */
    TAKEN(ranged("16", NULL));
    TAKEN(ranged(NULL, NULL));
    TAKEN(ranged(NULL, "16"));
    TAKEN(ranged("3", "16")); /* not aligned: copied */
    REFUSED(ranged("17", "16"), "past the end");
    REFUSED(ranged("17", NULL), "past the end");
    REFUSED(ranged("32", "16"), "past the end");
    REFUSED(ranged("33", NULL), "past the end");
    REFUSED(ranged("18446744073709551615", "16"), "past the end");
    REFUSED(ranged("18446744073709551600", "16"), "past the end");
    REFUSED(ranged("9223372036854775808", "16"), "past the end");
    REFUSED(ranged("0", "15"), "need 16");
    REFUSED(ranged("0", "17"), "need 16");
    REFUSED(ranged("0", "0"), "need 16");
    REFUSED(ranged("16", "18446744073709551615"), "need 16");
}

static void test_keys(void) {
    static const char *const twice[] = {"location", "offset", "length", "checksum"};
    set_up();
    for (size_t i = 0; i < 4; i++) {
        const char *value = i == 0 ? "w.bin" : i == 1 ? "0" : "16";
        gqac_str w = wire_external("w", 1, "4", "w.bin", "0", "16");
        wire_entry(&w, twice[i], value);
        if (i == 3) {
            TAKEN(model_of(w));
            w = wire_external("w", 1, "4", "w.bin", "0", "16");
            wire_entry(&w, "checksum", value);
            wire_entry(&w, "checksum", value);
        }
        REFUSED(model_of(w), "twice");
    }
    gqac_str w = wire_external("w", 1, "4", "w.bin", "0", "16");
    wire_entry(&w, "basepath", "/");
    REFUSED(model_of(w), "unknown key");
    w = wire_external("w", 1, "4", "w.bin", "0", "16");
    wire_entry(&w, "", "");
    REFUSED(model_of(w), "unknown key");
    REFUSED(model_of(wire_external("w", 1, "4", NULL, "0", "16")), "no location");
    w = wire_external("w", 1, "4", "w.bin", "0", "16");
    wire_bytes(&w, 9, data, 16);
    REFUSED(model_of(w), "inline and external");
    w = wire_external("w", 1, "4", "w.bin", "0", "16");
    wire_int(&w, 14, 0);
    REFUSED(model_of(w), "twice");
    w = wire_tensor("w", 1, "4", NULL, 0);
    wire_int(&w, 14, 2);
    REFUSED(model_of(w), "data location 2");
}

/* ---- sharing, laziness, digest -----------------------------------------------------------------
 */

static void test_content(void) {
    set_up();
    wire_import *import = wire_import_model(ranged("16", "16"), NULL);
    CU_ASSERT_EQUAL_FATAL(import->status, GQAC_OK);
    const gqac_tensor *w = import->module->graph->constants[0]->constant;
    CU_ASSERT_EQUAL(memcmp(w->data, data + 4, 16), 0);
    wire_import_free(import);
    /* zero elements need no bytes, but the file must exist */
    TAKEN(model_of(wire_external("w", 1, "0,4", "w.bin", "32", "0")));
    /* files that nothing reads are not opened */
    gqac_str graph = {0};
    wire_message(&graph, 1, wire_node("Relu", "x", "y"));
    wire_message(&graph, 5, wire_external("w", 1, "4", "missing.bin", "0", "16"));
    wire_message(&graph, 11, wire_value("x", 1, "B,4"));
    wire_message(&graph, 12, wire_value("y", 1, "B,4"));
    TAKEN(wire_model(graph));
}

static void digest_of(gqac_str model, unsigned char *digest) {
    wire_import *import = wire_import_model(model, NULL);
    CU_ASSERT_EQUAL_FATAL(import->status, GQAC_OK);
    CU_ASSERT_EQUAL(onnx_digest(import->files, NULL, digest, NULL), GQAC_OK);
    wire_import_free(import);
}

static void test_digest(void) {
    unsigned char a[32], b[32], c[32];
    set_up();
    digest_of(at_location("w.bin"), a);
    digest_of(at_location("w.bin"), b);
    CU_ASSERT_EQUAL(memcmp(a, b, 32), 0);
    float other[8] = {9};
    wire_write("w.bin", other, sizeof other);
    digest_of(at_location("w.bin"), c);
    CU_ASSERT_NOT_EQUAL(memcmp(a, c, 32), 0);
}

/* Two spellings of one file name the same file; the number of locations is limited. */
static void test_many(void) {
    set_up();
    for (int n = 10000; n <= 10001; n++) {
        gqac_str graph = {0};
        wire_message(&graph, 1, wire_node("Relu", "x", "y"));
        for (int i = 0; i < n; i++) {
            char name[32], location[32];
            snprintf(name, sizeof name, "w%d", i);
            snprintf(location, sizeof location, "w%d.bin", i);
            wire_message(&graph, 5, wire_external(name, 1, "4", location, "0", "16"));
        }
        wire_message(&graph, 11, wire_value("x", 1, "B,4"));
        wire_message(&graph, 12, wire_value("y", 1, "B,4"));
        CU_ASSERT(wire_expect(wire_model(graph), n == 10000 ? GQAC_OK : GQAC_LIMIT, "10000"));
    }
}

/* ---- a race ------------------------------------------------------------------------------------
 */

typedef struct race {
    atomic_bool stop;
    char file[256], link[256], place[256];
} race;

static void *swap(void *arg) {
    const struct timespec rest = {.tv_nsec = 1000000};
    race *r = arg;
    for (int i = 0; !atomic_load(&r->stop); i++) {
        rename(r->link, r->place);
        (void)!symlink("/etc/passwd", r->link);
        rename(r->file, r->place);
        if (i % 16 == 0) /* so that a slow import sometimes sees one file from beginning to end */
            nanosleep(&rest, NULL);
        FILE *f = fopen(r->file, "wb");
        if (f) {
            fwrite(data, sizeof data, 1, f);
            fclose(f);
        }
    }
    return NULL;
}

/* While a thread exchanges the file and a link to another file, the imported data are always those
 * of the file. */
static void test_race(void) {
    race r;
    pthread_t thread;
    int runs = unit_full() ? 100000 : 3000, good = 0;
    set_up();
    atomic_init(&r.stop, false);
    snprintf(r.file, sizeof r.file, "%s", wire_path("real"));
    snprintf(r.link, sizeof r.link, "%s", wire_path("trap"));
    snprintf(r.place, sizeof r.place, "%s", wire_path("place"));
    wire_write("real", data, sizeof data);
    wire_write("place", data, sizeof data);
    CU_ASSERT_EQUAL(symlink("/etc/passwd", r.link), 0);
    gqac_str model = at_location("place");
    wire_write("m.onnx", model.text, model.length);
    gqac_str_free(&model);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, swap, &r), 0);
    for (int i = 0; i < runs; i++) {
        wire_import *import = wire_import_path(wire_path("m.onnx"), NULL);
        if (import->status == GQAC_OK) {
            const gqac_tensor *w = import->module->graph->constants[0]->constant;
            CU_ASSERT_EQUAL(memcmp(w->data, data, 16), 0);
            good++;
        }
        wire_import_free(import);
    }
    atomic_store(&r.stop, true);
    pthread_join(thread, NULL);
    CU_ASSERT(good > 0);
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {
        {"spellings", test_spellings}, {"odd names", test_odd_names},
        {"kinds", test_kinds},         {"links", test_links},
        {"root", test_root},           {"model path", test_model_path},
        {"numbers", test_numbers},     {"keys", test_keys},
        {"content", test_content},     {"digest", test_digest},
        {"many", test_many},           {"race", test_race},
    };
    int code = unit_run("onnx_external", cases, sizeof cases / sizeof *cases, argc, argv);
    wire_clean();
    return code;
}
