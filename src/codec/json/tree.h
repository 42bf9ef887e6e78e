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

/* ---- errors that name a value by its path ---------------------------------------------------- */

/* Room for any path's text; longer ones are cut. */
enum { JSON_PATH_BYTES = 160 };

/* Prints the path of `val`, a value of the tree, NUL-terminated; tree->what for the root.
 * Returns: `out`. */
const char *json_path_print(const struct json_tree *tree, yyjson_val *val,
                            char out[JSON_PATH_BYTES]);

/* Fills `err` with "PATH: " and the formatted sentence. Returns: `status`. */
enum status json_error(const struct json_tree *tree, yyjson_val *val, enum status status,
                       struct error *err, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* The same with ", got …" and what `val` is behind it. */
enum status json_error_got(const struct json_tree *tree, yyjson_val *val, enum status status,
                           struct error *err, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* "PATH.key: missing; expected …". Returns: ST_BAD_FIELD. */
enum status json_error_missing(const struct json_tree *tree, yyjson_val *object, const char *key,
                               const char *expected, struct error *err);

/* ---- values by type -------------------------------------------------------------------------- */

/* A string, or the key of an object's member; a view of the tree's copy of the text. */
static inline struct str json_str(yyjson_val *val) {
    return str_make(unsafe_yyjson_get_str(val), unsafe_yyjson_get_len(val));
}
/* What is in a container, one after the other: starts with json_first(container) and goes on with
 * json_next(element), json_count(container) times. In an object these are the keys; a key's value
 * is json_value(key), and the next key is json_next of that value. */
static inline size_t json_count(yyjson_val *container) {
    return unsafe_yyjson_get_len(container);
}
static inline yyjson_val *json_first(yyjson_val *container) {
    return unsafe_yyjson_get_first(container);
}
static inline yyjson_val *json_value(yyjson_val *key) {
    return key + 1;
}
static inline yyjson_val *json_next(yyjson_val *element) {
    return unsafe_yyjson_get_next(element);
}

/* Is `val` one of the bare words NaN, Infinity and -Infinity, which are raw values like big
 * numbers? Fills *out with what it stands for. */
bool json_non_finite(yyjson_val *val, double *out);

/* Finds members by name: found[i] is the value of the first member called names[i], NULL where
 * there is none. Other members are passed over; of equal names the first counts. */
void json_find(yyjson_val *object, const struct str *names, size_t n, yyjson_val **found);

/* Room in `items` for one more item of `size` bytes behind the `n` that are there, of `total` that
 * may come. A peer chooses how many elements an array has, and items are larger than their JSON:
 * memory follows what has been read and found good. Starts with NULL and 0. Returns: the items,
 * perhaps elsewhere; NULL when out of memory. */
void *json_array_grow(struct arena *arena, void *items, size_t n, size_t total, size_t size);

/* Each returns ST_BAD_FIELD for another type. */
enum status json_read_string(const struct json_tree *tree, yyjson_val *val, struct str *out,
                             struct error *err) __attribute__((warn_unused_result));
enum status json_read_bool(const struct json_tree *tree, yyjson_val *val, bool *out,
                           struct error *err) __attribute__((warn_unused_result));
/* A whole number from `min` (-1 or 0) to 2^63-1, written without point and exponent. */
enum status json_read_i64(const struct json_tree *tree, yyjson_val *val, int64_t min, int64_t *out,
                          struct error *err) __attribute__((warn_unused_result));
enum status json_expect_object(const struct json_tree *tree, yyjson_val *val, struct error *err)
    __attribute__((warn_unused_result));
enum status json_expect_array(const struct json_tree *tree, yyjson_val *val, struct error *err)
    __attribute__((warn_unused_result));

/* As json_tree_parse, for a request that has to be an object and may have no number that is not
 * finite. */
enum status json_tree_parse_request(struct json_tree *tree, struct arena *arena, struct str body,
                                    const struct json_limits *limits, struct error *err)
    __attribute__((warn_unused_result));

#endif
