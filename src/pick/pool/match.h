/* Which of several pools a request is for, by what its headers and the proxy's metadata say. Of all
 * pools that match the most specific takes it, as a gateway's routes do, so that the order of a
 * file does not matter:
 *
 *     1. by authority: the same one, else the longest `*.suffix`, else a pool for every authority
 *     2. of these by path: the longest prefix, whole segments of it
 *     3. of these one that asks for a header and for metadata, then one for a header, then one for
 *        metadata, then one for neither; of the last equal ones the first in the file
 *
 * A pool that asks for nothing takes the rest. What is found takes some binary searches and no
 * memory, however many pools there are. It knows no pool and no message: texts in, a number out.
 *
 * Thread: an index does not change; any number of them read it. */
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
    POOL_MATCH_MAX_NAMES = 16,            /* of headers in all pools, and of metadata */
    POOL_MATCH_MAX_AUTHORITY_BYTES = 262, /* a name of DNS, and ":65535" */
};

/* What a pool asks for. Zeroed: nothing. All that is there must hold. */
struct pool_match {
    const struct str
        *authorities; /* one of them, in lower case: "a.b", "a.b:80" or ".b" for "*.b" */
    size_t n_authorities;
    struct str path;                       /* a prefix, without a / at its end; len 0: every path */
    struct str header, header_value;       /* header: ptr NULL: none; in lower case */
    struct str space, key, metadata_value; /* of metadata; key: ptr NULL: none */
};

/* The name of something in a request: of a header, or of metadata. */
struct pool_match_name {
    struct str space; /* of metadata */
    struct str name;
};

struct pool_match_names {
    struct pool_match_name items[POOL_MATCH_MAX_NAMES];
    size_t n;
};

/* What a request says; views. ptr NULL: nothing. */
struct pool_match_input {
    struct str authority, path;
    struct str headers[POOL_MATCH_MAX_NAMES];  /* of the index's names, in their order */
    struct str metadata[POOL_MATCH_MAX_NAMES]; /* the same */
};

struct pool_index {
    struct pool_match_names headers, metadata; /* that some pool asks for */
    bool is_single_catch_all;                  /* there is one pool, and it asks for
                                                             nothing */
    bool has_catch_all;                        /* some pool asks for nothing */
    size_t catch_all;                          /* which */
    bool has_suffixes;
    struct match_rule *rules; /* sorted */
    size_t n_rules;
    struct match_authority *authorities;
    size_t n_authorities;
    struct match_node *nodes;
    struct match_shape *shapes;
};

/* A copy with its texts in `arena`. Returns: false when out of memory. */
bool pool_match_dup(const struct pool_match *match, struct arena *arena, struct pool_match *out)
    __attribute__((warn_unused_result));

/* "authority a.b or *.c, path /v1, header x = 1"; "the rest" where it asks for nothing. */
void pool_match_print(const struct pool_match *match, struct buf *out);

/* Two pools that would take the same requests. */
struct pool_match_conflict {
    size_t first, second;
    struct str authority; /* on which they meet; len 0: every one */
};

/* An index over `matches`, one for each pool, whose texts it borrows. All of it is in `arena`.
 * Returns: ST_BAD_CONFIG with `*clash` where two of them ask for the same, ST_NO_MEMORY, and
 * ST_BAD_CONFIG with n_names over the limit, where clash->first and clash->again are the same
 * pool. */
enum status pool_index_build(const struct pool_match *const *matches, size_t n, struct arena *arena,
                             struct pool_index *out, struct pool_match_conflict *conflict,
                             struct error *err) __attribute__((warn_unused_result));

/* Returns: which pool; SIZE_MAX: none. Of a plain index it is `rest`, whatever the facts are. */
size_t pool_index_find(const struct pool_index *index, const struct pool_match_input *input);

#endif
