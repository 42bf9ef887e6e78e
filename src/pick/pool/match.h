/* Matching: which of several pools a request is for, by its headers and the proxy's metadata. As
 * with a gateway's routes the most specific match counts, so the order in the file does not matter:
 *
 *     1. by authority: an equal one, else the longest `*.suffix`, else a pool for every authority
 *     2. then by path: the longest prefix of whole segments
 *     3. then a pool with conditions on a header and metadata, then on a header, then on metadata,
 *        then on neither; of equal ones the first in the file
 *
 * A pool without conditions takes all other requests. Matching takes a few binary searches and no
 * memory, however many pools there are.
 *
 * Thread: an index is immutable; any number of threads read it. */
#ifndef SLUICE_PICK_POOL_MATCH_H
#define SLUICE_PICK_POOL_MATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/base/str.h"

enum {
    POOL_MATCH_MAX_NAMES = 16,            /* limit on the names of headers in all pools, and on
                                             those of metadata */
    POOL_MATCH_MAX_AUTHORITY_BYTES = 262, /* a DNS name, and ":65535" */
};

/* The conditions of a pool; all of them must hold. Zeroed: none. */
struct pool_match {
    const struct str
        *authorities; /* one of these; in lower case: "a.b", "a.b:80" or ".b" for "*.b" */
    size_t n_authorities;
    struct str path;                       /* a prefix, without a / at its end; len 0: every path */
    struct str header, header_value;       /* header ptr NULL: none; in lower case */
    struct str space, key, metadata_value; /* key ptr NULL: none */
};

/* The name of a header or of a metadata entry. */
struct pool_match_name {
    struct str space; /* metadata namespace */
    struct str name;
};

struct pool_match_names {
    struct pool_match_name items[POOL_MATCH_MAX_NAMES];
    size_t n;
};

/* The values of a request; views. ptr NULL: absent. */
struct pool_match_input {
    struct str authority, path;
    struct str headers[POOL_MATCH_MAX_NAMES];  /* by the order of the index's names */
    struct str metadata[POOL_MATCH_MAX_NAMES]; /* the same */
};

struct pool_index {
    struct pool_match_names headers, metadata; /* that pools have conditions on */
    bool is_single_catch_all;                  /* there is one pool, and it has no conditions */
    bool has_catch_all;                        /* some pool has no conditions */
    size_t catch_all;                          /* its index */
    bool has_suffixes;
    struct match_rule *rules; /* sorted */
    size_t n_rules;
    struct match_authority *authorities;
    size_t n_authorities;
    struct match_node *nodes;
    struct match_shape *shapes;
};

/* A copy with its texts in `arena`. Returns: false when out of memory. */
bool pool_match_dup(const struct pool_match *match, struct arena *arena,
                    struct pool_match *out) SLUICE_MUST_USE;

/* "authority a.b or *.c, path /v1, header x = 1"; "all other requests" without conditions. */
void pool_match_print(const struct pool_match *match, struct buf *out);

/* Two pools with the same conditions. */
struct pool_match_conflict {
    size_t first, second;
    struct str authority; /* that both have; len 0: every authority */
};

/* An index over `matches`, one for each pool, whose texts it borrows; the index is in `arena`.
 * Returns: ST_NO_MEMORY; ST_BAD_CONFIG with `*conflict` when two pools have the same conditions,
 * or, with first == second, when the pools have more than POOL_MATCH_MAX_NAMES names. */
enum status pool_index_build(const struct pool_match *const *matches, size_t n, struct arena *arena,
                             struct pool_index *out, struct pool_match_conflict *conflict,
                             struct error *err) SLUICE_MUST_USE;

/* Returns: the index of the pool; SIZE_MAX: none. With is_single_catch_all it is catch_all,
 * whatever the input is. */
size_t pool_index_find(const struct pool_index *index, const struct pool_match_input *input);

#endif
