/* Reading single values of a JSON tree by type. What has another type is refused by its path. */
#ifndef SLUICE_CODEC_JSON_READ_H
#define SLUICE_CODEC_JSON_READ_H

#include "codec/json/tree.h"

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
