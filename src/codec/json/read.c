/* The typed readers. They refuse to convert: a number in a string is a string. */
#include "codec/json/read.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "codec/json/path.h"

bool json_non_finite(yyjson_val *val, double *out) {
    if (!unsafe_yyjson_is_raw(val)) {
        return false;
    }
    struct str word = json_str(val);
    bool negative = word.ptr[0] == '-';
    char first = word.ptr[negative];
    if (first != 'N' && first != 'I') {
        return false;
    }
    double magnitude = first == 'N' ? (double)NAN : (double)INFINITY;
    *out = negative ? -magnitude : magnitude;
    return true;
}

void json_find(yyjson_val *object, const struct str *names, size_t n, yyjson_val **found) {
    yyjson_val *key = json_first(object);
    for (size_t i = 0; i < n; i++) {
        found[i] = NULL;
    }
    for (size_t left = json_count(object); left > 0; left--, key = json_next(json_value(key))) {
        struct str name = json_str(key);
        for (size_t i = 0; i < n; i++) {
            if (name.len == names[i].len && name.ptr[0] == names[i].ptr[0] &&
                memcmp(name.ptr, names[i].ptr, name.len) == 0) {
                found[i] = found[i] ? found[i] : json_value(key);
                break;
            }
        }
    }
}

enum { FIRST_ITEMS = 8 };

void *json_array_grow(struct arena *arena, void *items, size_t n, size_t total, size_t size) {
    bool full = !items || (n >= FIRST_ITEMS && (n & (n - 1)) == 0);
    if (!full) {
        return items;
    }
    size_t capacity = !items ? FIRST_ITEMS : n * 2;
    capacity = capacity < total ? capacity : total;
    return arena_realloc(arena, items, n * size, capacity * size);
}

enum status json_read_string(const struct json_tree *tree, yyjson_val *val, struct str *out,
                             struct error *err) {
    if (!unsafe_yyjson_is_str(val)) {
        return json_error_got(tree, val, ST_BAD_FIELD, err, "expected a string");
    }
    *out = json_str(val);
    return ST_OK;
}

enum status json_read_bool(const struct json_tree *tree, yyjson_val *val, bool *out,
                           struct error *err) {
    if (!unsafe_yyjson_is_bool(val)) {
        return json_error_got(tree, val, ST_BAD_FIELD, err, "expected true or false");
    }
    *out = unsafe_yyjson_get_bool(val);
    return ST_OK;
}

enum status json_read_i64(const struct json_tree *tree, yyjson_val *val, int64_t min, int64_t *out,
                          struct error *err) {
    bool fits = unsafe_yyjson_is_uint(val) ? val->uni.u64 <= INT64_MAX
                                           : unsafe_yyjson_is_sint(val) && val->uni.i64 >= min;
    if (!fits) {
        return json_error_got(tree, val, ST_BAD_FIELD, err,
                              "expected a whole number from %" PRId64 " to %" PRId64, min,
                              INT64_MAX);
    }
    *out = val->uni.i64;
    return ST_OK;
}

enum status json_expect_object(const struct json_tree *tree, yyjson_val *val, struct error *err) {
    return unsafe_yyjson_is_obj(val)
               ? ST_OK
               : json_error_got(tree, val, ST_BAD_FIELD, err, "expected an object");
}

enum status json_expect_array(const struct json_tree *tree, yyjson_val *val, struct error *err) {
    return unsafe_yyjson_is_arr(val)
               ? ST_OK
               : json_error_got(tree, val, ST_BAD_FIELD, err, "expected an array");
}

enum status json_tree_parse_request(struct json_tree *tree, struct arena *arena, struct str body,
                                    const struct json_limits *limits, struct error *err) {
    enum status st = json_tree_parse(tree, "the request", arena, body, limits, err);
    if (st == ST_OK) {
        st = json_tree_check_finite(tree, NULL, 0, err);
    }
    return st == ST_OK ? json_expect_object(tree, tree->root, err) : st;
}
