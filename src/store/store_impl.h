/* Private to src/store: the index of one store, and what it keeps.
 *
 * A space holds what one tenant computed with one kind of cache. In it, prefixes are the nodes of a
 * radix tree: the edge to a node has the ids by which it continues its parent. A node with rows can
 * be continued from every length that its rows can be rewound to; one without rows is where its
 * children branch off. All of it is guarded by the lock of the store, which is never held while
 * files are used. */
#ifndef GQAC_STORE_IMPL_H
#define GQAC_STORE_IMPL_H

#include <gqac/store.h>
#include <pthread.h>

#include "base/file.h"
#include "runtime/sequence.h"

typedef struct store_node store_node;
typedef struct store_space store_space;

struct store_node {
    store_space *space;
    store_node *parent, **children; /* children by first id, ascending; parent NULL: a root */
    size_t n_children, capacity;
    int64_t begin, end; /* tokens before its edge, and after */
    int64_t *ids;       /* [end - begin] */
    kv_sequence *rows;  /* of leading tokens, at most the first `end`; NULL: none */
    int64_t pinned;     /* as in gqac_sequence, of the sequence that made the rows */
    int pins;
    int64_t uses;
    store_node *older, *newer; /* all nodes of a store but roots, by last use */
};

/* A tenant "A\nB" is a part of the tenant "A", whose budget it shares. */
typedef struct store_tenant {
    char *name;
    struct store_tenant
        *owner;    /* of the budget: the tenant itself, or that of which it is a part */
    int64_t bytes; /* of an owner, those of its parts included */
    size_t users;  /* number of spaces and parts; at 0 it is freed */
    bool shown;    /* gqac_store_prefixes has returned its name, which must live as long as the
                      store */
} store_tenant;

/* Side 1 holds rows made with the rope tables of lengths beyond the LongRoPE threshold. */
enum { STORE_SIDES = 2 };

struct store_space {
    gqac_store *store;
    store_tenant *tenant;
    char *kind;
    size_t users; /* number of sequences that report to it, and of calls; at 0, if it is empty, it
                     is freed */
    store_node roots[STORE_SIDES];
    uint32_t *holders; /* [number of a block]: how many nodes hold it */
    size_t n_holders;
    int64_t blocks; /* that some node holds */
};

typedef struct store_folder store_folder;
typedef struct store_remote store_remote;

struct gqac_store {
    const gqac_program *program;
    gqac_store_options options; /* but folder is NULL: see `files` */
    int64_t threshold;          /* gqac_program_rope_threshold */
    pthread_mutex_t lock;
    size_t n_tenants, tenants_capacity, n_spaces, spaces_capacity;
    store_tenant **tenants;
    store_space **spaces;
    store_node *oldest, *newest;
    gqac_store_statistics counts; /* of events; other fields are computed when they are asked for */
    store_folder *files;          /* NULL: there is no folder */
    store_remote *remote;         /* NULL: there is no remote tier */
};

/* Adds the first `length` tokens of a sequence, to which its rows can be rewound, unless they do
 * not fit a budget. Under the lock. NO_MEMORY. */
gqac_status store_add_rows(store_space *space, const gqac_sequence *sequence, int64_t length,
                           gqac_diag *diag);

/* ---- index.c ------------------------------------------------------------- */

typedef struct store_match {
    store_node *node; /* whose rows are to be shared; NULL: nothing can be reused */
    int64_t length;   /* tokens that can be reused, at most the limit of the search */
    int64_t known;    /* leading tokens that are in the index, at most n */
} store_match;
/* Finds what can be reused of ids[0..n), at most `limit` tokens. `use`: marks what was found as
 * used. */
store_match store_find(store_node *root, const int64_t *ids, int64_t n, int64_t limit, bool use);
/* Adds the rows of ids[0..n), n > 0. NO_MEMORY: nothing is added. */
gqac_status store_insert(store_node *root, const kv_sequence *rows, const int64_t *ids, int64_t n,
                         int64_t pinned, gqac_diag *diag);
/* The node that ends after ids[0..n), which is made if it lies inside an edge; NULL: the ids are
 * not in the index, or there is no memory. */
store_node *store_node_at(store_node *root, const int64_t *ids, int64_t n);
/* Removes the least recently used leaf that is not pinned, of an owner or (NULL) of all; false:
 * there is none. */
bool store_remove_oldest(gqac_store *store, const store_tenant *owner);
/* Frees all nodes of a space. */
void store_clear(store_space *space);

/* ---- folder.c ------------------------------------------------------------ */

gqac_status store_folder_open(gqac_store *store, const char *path, store_folder **folder,
                              gqac_diag *diag);
void store_folder_close(store_folder *folder);
/* Loads the file that holds the longest prefix of ids[0..n), if that is more than `least` tokens;
 * *snapshot is NULL if there is none. A damaged file is counted and left alone. */
gqac_status store_folder_find(gqac_store *store, const char *tenant, const char *kind,
                              const int64_t *ids, int64_t n, int64_t least,
                              gqac_snapshot **snapshot, gqac_diag *diag);

#define STORE_SUFFIX ".gqs"
enum { STORE_NAME = 64 + sizeof STORE_SUFFIX }; /* capacity of a name with its NUL */
/* The name under which a snapshot file with these contents is found. */
void store_name_of(const gqac_snapshot_file *file, const char *tenant, char name[STORE_NAME]);
/* Returns "folder/name", which the caller frees; NULL: out of memory. */
char *store_join(const char *folder, const char *name);
/* Opens a snapshot file. INVALID_INPUT: it is a link, or another file that is not regular, and is
 * not opened. */
gqac_status store_open_plain(const char *path, bool whole, gqac_snapshot_file **file,
                             gqac_diag *diag);
/* Fails with IO: the folder cannot be read, for the reason in errno. */
gqac_status store_fail_folder(const char *path, gqac_diag *diag);

/* Adds a field to a digest that names something: its tag, its length and its bytes. */
void store_put_field(gqac_sha256 *state, const char *tag, const void *data, size_t bytes);

/* ---- remote.c ------------------------------------------------------------ */

gqac_status store_remote_open(gqac_store *store, const gqac_store_remote *functions, int64_t ms,
                              store_remote **remote, gqac_diag *diag);
void store_remote_close(store_remote *remote);
/* The maximum time for reading one prefix, in nanoseconds. */
int64_t store_remote_limit(const store_remote *remote);
/* Adds to the index, under `root`, what the tier has of ids[0..n) beyond what is there. `length`:
 * that of the text, which chooses the rope tables. `empty`: an empty sequence of the kind of the
 * space. Whatever goes wrong, the index stays sound, and the tokens will be computed. */
void store_remote_find(store_space *space, store_node *root, const gqac_sequence *empty,
                       int64_t length, const int64_t *ids, int64_t n);
/* Writes what the tier lacks of the full blocks of a sequence, as far as it can. */
void store_remote_save(gqac_store *store, const char *tenant, const gqac_sequence *sequence);

/* ---- files.c ------------------------------------------------------------- */

/* Removes a file that may be gone already, and counts it. */
gqac_status store_remove_file(const char *folder, const char *name, int64_t *removed,
                              gqac_diag *diag);
/* Removes the least recently used files until those of the list fit the budget; not `keep`,
 * unless that is NULL. Sorts the list. */
gqac_status store_keep_files(const char *folder, gqac_store_file *files, size_t n, int64_t budget,
                             const char *keep, int64_t *removed, gqac_diag *diag);

#endif
