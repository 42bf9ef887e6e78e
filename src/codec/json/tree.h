/* A JSON text as yyjson's tree, built in a request's arena and within limits, and the words to
 * refuse a value of it by its path. It refuses everything that is not JSON but the bare words NaN,
 * Infinity and -Infinity, which Python's clients write; who reads the tree says where they may
 * stand.
 *
 * The values of a tree lie one behind the other in the order of the text, a container before what
 * is in it, which is yyjson's documented layout: readers of much data walk that memory. */
#ifndef SLUICE_CODEC_JSON_TREE_H
#define SLUICE_CODEC_JSON_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <yyjson.h>

#include "codec/json/limits.h"
#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/base/str.h"

struct json_tree {
    const char *root_name;   /* what messages call the whole: "the request" */
    bool path_has_root_name; /* paths begin with `what`: "data[0]" */
    bool is_body;            /* the JSON part of an HTTP body, which tensor bytes may follow */
    struct arena *arena;
    yyjson_val *root;
    yyjson_val *end; /* behind the last value */
    bool non_finite; /* some value is NaN or infinite */
    /* the block that holds the values */
    void *block;
    size_t block_bytes;
};

/* Parses `text`, which must be one JSON value. `what` as above; it lives as long as the tree.
 * Numbers that fit neither 64-bit integers nor doubles become raw values, as do NaN and infinities.
 * Returns: BODY_TOO_LARGE, TOO_DEEP and TOO_MANY_ELEMENTS before anything is allocated; BAD_JSON
 * with the offset. Owns: in `arena`; strings are NUL-terminated. */
enum status json_tree_parse(struct json_tree *tree, const char *root_name, struct arena *arena,
                            struct str text, const struct json_limits *limits, struct error *err)
    __attribute__((warn_unused_result));

/* The same for the JSON part of an HTTP body: what follows the value may be tensor bytes, and the
 * message says what is wrong then. */
enum status json_tree_parse_body(struct json_tree *tree, const char *root_name, struct arena *arena,
                                 struct str text, const struct json_limits *limits,
                                 struct error *err) __attribute__((warn_unused_result));

/* Gives the memory of the values back where that is worth it. The strings that were taken from the
 * tree stay valid, the values do not. */
void json_tree_free_values(struct json_tree *tree);

/* A part of the tree, `first` to before `end`. */
struct json_span {
    yyjson_val *first;
    const yyjson_val *end;
};

/* All of `value`, itself included. */
struct json_span json_value_span(yyjson_val *value);

/* Refuses the first NaN or infinity outside of `allowed`, whose `n` spans are in the tree's
 * order. */
enum status json_tree_check_finite(const struct json_tree *tree, const struct json_span *allowed,
                                   size_t n, struct error *err) __attribute__((warn_unused_result));

#endif
