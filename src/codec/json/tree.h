/* A JSON text as yyjson's tree, built in a request's arena and within limits; typed access to its
 * values; and errors that name a value by its path ("inputs[0].shape[1]: expected a whole number,
 * got a string \"4\""). The text must be JSON, except that the bare words NaN, Infinity and
 * -Infinity are accepted, which Python's clients write; readers of the tree check where they may
 * appear.
 *
 * What a value is, and how containers are iterated, is core/base/json_value.h. Readers of much data
 * iterate over the memory of the values. Paths are computed by walking the tree when an error needs
 * one. */
#ifndef SLUICE_CODEC_JSON_TREE_H
#define SLUICE_CODEC_JSON_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/json/limits.h"
#include "core/base/arena.h"
#include "core/base/json_value.h"
#include "core/base/status.h"
#include "core/base/str.h"

struct json_tree {
    const char *root_name;   /* the name of the whole text in messages: "the request" */
    bool path_has_root_name; /* paths begin with `root_name`: "data[0]" */
    bool is_body;            /* the JSON part of an HTTP body, which may be followed by tensor
                                bytes */
    struct arena *arena;
    yyjson_val *root;
    yyjson_val *end; /* after the last value */
    bool non_finite; /* some value is NaN or infinite */
    /* Set by a reader of responses: null, "NaN", "Infinity" and "-Infinity" are numbers among the
     * data of floats, as servers write those that JSON lacks. */
    bool replaced_non_finite;
    /* the block that contains the values */
    void *block;
    size_t block_bytes;
    size_t values_bytes; /* of all values, as scanned; 0: unknown */
};

/* Parses `text`, which must be one JSON value. `root_name` as above; it must stay valid as long as
 * the tree. Numbers that fit neither 64-bit integers nor doubles become raw values, as do NaN and
 * infinities. Returns: ST_BODY_TOO_LARGE, ST_TOO_DEEP and ST_TOO_MANY_ELEMENTS before anything is
 * allocated; ST_BAD_JSON with the offset; ST_NO_MEMORY. Owns: in `arena`; strings are
 * NUL-terminated. */
enum status json_tree_parse(struct json_tree *tree, const char *root_name, struct arena *arena,
                            struct str text, const struct json_limits *limits,
                            struct error *err) SLUICE_MUST_USE;

/* The same for the JSON part of an HTTP body: where bytes follow the value, the message explains
 * how tensor bytes must be announced. */
enum status json_tree_parse_body(struct json_tree *tree, const char *root_name, struct arena *arena,
                                 struct str text, const struct json_limits *limits,
                                 struct error *err) SLUICE_MUST_USE;

/* Frees the memory of the values if it is large. The strings that were read from the tree stay
 * valid, the values do not. */
void json_tree_free_values(struct json_tree *tree);

/* A range of the tree, from `first` to before `end`. */
struct json_span {
    yyjson_val *first;
    const yyjson_val *end;
};

/* All of `value`, itself included. */
struct json_span json_value_span(yyjson_val *value);

/* Reports the first NaN or infinity outside of `allowed`, whose `n` spans are in the tree's order.
 * Returns: ST_BAD_FIELD. */
enum status json_tree_check_finite(const struct json_tree *tree, const struct json_span *allowed,
                                   size_t n, struct error *err) SLUICE_MUST_USE;

/* ---- errors that name a value by its path ---------------------------------------------------- */

/* Enough for a path's text; longer ones are cut. */
enum { JSON_PATH_BYTES = 160 };

/* Prints the path of `val`, a value of the tree, NUL-terminated; tree->root_name for the root.
 * Returns: `out`. */
const char *json_path_print(const struct json_tree *tree, yyjson_val *val,
                            char out[JSON_PATH_BYTES]);

/* Fills `err` with "PATH: " and the formatted text. Returns: `status`. */
enum status json_error(const struct json_tree *tree, yyjson_val *val, enum status status,
                       struct error *err, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* The same, followed by ", got …" and a description of `val`. */
enum status json_error_got(const struct json_tree *tree, yyjson_val *val, enum status status,
                           struct error *err, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* "PATH.key: missing; expected …". Returns: ST_BAD_FIELD. */
enum status json_error_missing(const struct json_tree *tree, yyjson_val *object, const char *key,
                               const char *expected, struct error *err);

/* ---- values by type -------------------------------------------------------------------------- */

/* Grows `items`, which has `n` items of `size` bytes, so that one more fits; at most `total` will
 * be added. A peer chooses the number of an array's elements, and items are larger than their JSON:
 * memory grows with the elements that were read and valid. Starts with NULL and 0. Returns: the
 * items, which may have moved; NULL when out of memory. */
void *json_array_grow(struct arena *arena, void *items, size_t n, size_t total, size_t size);

/* The readers of core/base/json_value.h with errors: ST_BAD_FIELD for another type. */
enum status json_read_string(const struct json_tree *tree, yyjson_val *val, struct str *out,
                             struct error *err) SLUICE_MUST_USE;
enum status json_read_bool(const struct json_tree *tree, yyjson_val *val, bool *out,
                           struct error *err) SLUICE_MUST_USE;
/* A whole number from `min` (-1 or 0) to 2^63-1, written without point and exponent. */
enum status json_read_i64(const struct json_tree *tree, yyjson_val *val, int64_t min, int64_t *out,
                          struct error *err) SLUICE_MUST_USE;
/* The same from 0. */
enum status json_read_u64(const struct json_tree *tree, yyjson_val *val, uint64_t *out,
                          struct error *err) SLUICE_MUST_USE;
enum status json_expect_object(const struct json_tree *tree, yyjson_val *val,
                               struct error *err) SLUICE_MUST_USE;
enum status json_expect_array(const struct json_tree *tree, yyjson_val *val,
                              struct error *err) SLUICE_MUST_USE;

/* As json_tree_parse, for a request that has to be an object and may contain only finite
 * numbers. */
enum status json_tree_parse_request(struct json_tree *tree, struct arena *arena, struct str body,
                                    const struct json_limits *limits,
                                    struct error *err) SLUICE_MUST_USE;

#endif
