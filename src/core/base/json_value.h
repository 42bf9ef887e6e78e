/* JSON values by type: the one set of accessors that both readers of JSON stand on. codec/json/tree
 * reads requests and answers, core/base/doc reads configuration and the objects of a cluster; each
 * adds where a value is to the error, and this header says what the value is.
 *
 * The values of a tree are adjacent in memory in the order of the text, a container before its
 * content, which is yyjson's documented layout. A `val` of NULL is an absent value: it has no type,
 * and every json_is_, json_get_ and json_member accepts it. The others require a value of the type
 * that their comment names.
 *
 * Thread: any; a tree is not changed. */
#ifndef SLUICE_CORE_BASE_JSON_VALUE_H
#define SLUICE_CORE_BASE_JSON_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <yyjson.h>

#include "core/base/str.h"

/* ---- types ----------------------------------------------------------------------------------- */

enum json_kind {
    JSON_ABSENT,
    JSON_NULL,
    JSON_BOOL,
    JSON_UINT, /* a whole number from 0 to 2^64-1 */
    JSON_SINT, /* a whole number from -2^63 to -1, or -0 */
    JSON_REAL, /* a number with point or exponent */
    JSON_RAW,  /* as text: a number that fits neither, NaN or an infinity; only if asked for */
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT,
};
enum json_kind json_kind_of(const yyjson_val *val);

static inline bool json_is_null(yyjson_val *val) {
    return yyjson_is_null(val);
}
static inline bool json_is_bool(yyjson_val *val) {
    return yyjson_is_bool(val);
}
/* A number without point and exponent. */
static inline bool json_is_whole(yyjson_val *val) {
    return yyjson_is_int(val);
}
static inline bool json_is_number(yyjson_val *val) {
    return yyjson_is_num(val);
}
static inline bool json_is_string(yyjson_val *val) {
    return yyjson_is_str(val);
}
static inline bool json_is_array(yyjson_val *val) {
    return yyjson_is_arr(val);
}
static inline bool json_is_object(yyjson_val *val) {
    return yyjson_is_obj(val);
}
/* An array or an object. */
static inline bool json_is_container(yyjson_val *val) {
    return yyjson_is_ctn(val);
}

/* Is `val` one of the bare words NaN, Infinity and -Infinity, which are raw values like big
 * numbers? Fills *out with its value. */
bool json_non_finite(yyjson_val *val, double *out);

/* ---- values by type -------------------------------------------------------------------------- */

/* Each fills *out if `val` has the type, and a value in the range, and leaves it alone otherwise.
 * Nothing is converted: a number in a string is a string, and 1.0 is no whole number. Returns:
 * whether *out was filled. */
static inline bool json_get_bool(yyjson_val *val, bool *out) {
    bool fits = yyjson_is_bool(val);
    if (fits) {
        *out = unsafe_yyjson_get_bool(val);
    }
    return fits;
}
static inline bool json_get_i64(yyjson_val *val, int64_t min, int64_t max, int64_t *out) {
    bool fits = yyjson_is_uint(val) ? val->uni.u64 <= INT64_MAX : yyjson_is_sint(val);
    fits = fits && val->uni.i64 >= min && val->uni.i64 <= max;
    if (fits) {
        *out = val->uni.i64;
    }
    return fits;
}
/* Any number but a raw one. */
static inline bool json_get_f64(yyjson_val *val, double *out) {
    bool fits = yyjson_is_num(val);
    if (fits) {
        *out = unsafe_yyjson_get_num(val);
    }
    return fits;
}
/* A view of the tree's copy of the text, which is followed by a NUL. */
static inline bool json_get_string(yyjson_val *val, struct str *out) {
    bool fits = yyjson_is_str(val);
    if (fits) {
        *out = str_make(unsafe_yyjson_get_str(val), unsafe_yyjson_get_len(val));
    }
    return fits;
}

/* Returns: the string, or a NULL pointer for any other value. For the members of a peer's answer
 * that are not worth an error. */
static inline struct str json_text(yyjson_val *val) {
    struct str text = {NULL, 0};
    (void)json_get_string(val, &text);
    return text;
}
/* Is `val` the string `text`? */
static inline bool json_text_is(yyjson_val *val, const char *text) {
    return yyjson_equals_str(val, text);
}
/* `val` is true or false. */
static inline bool json_bool(yyjson_val *val) {
    return unsafe_yyjson_get_bool(val);
}
/* The whole number, or 0 for any other value. */
static inline int64_t json_whole(yyjson_val *val) {
    return yyjson_get_sint(val);
}

/* Returns: `val`; NULL if it is null. Clients whose objects have a field for each optional member
 * (pydantic, protobuf's JSON, Go) write null for those that are not set. */
static inline yyjson_val *json_given(yyjson_val *val) {
    return json_is_null(val) ? NULL : val;
}

/* ---- containers ------------------------------------------------------------------------------ */

/* Returns: the value of the first member with the name; NULL if there is none, or no object. */
yyjson_val *json_member(yyjson_val *object, const char *name);
/* The same for a path of members and elements by RFC 6901: "/metadata/name". */
yyjson_val *json_at(yyjson_val *root, const char *pointer);
/* Returns: NULL beyond the last element, or if `array` is none. */
yyjson_val *json_element(yyjson_val *array, size_t index);
/* Finds members by name: found[i] is the value of the first member called names[i] that is not
 * null, NULL where there is none. Other members are ignored. `object` is one. */
void json_find(yyjson_val *object, const struct str *names, size_t n, yyjson_val **found);
/* Are the values equal, whatever the order of the members? false for two that are absent. */
bool json_equal(yyjson_val *a, yyjson_val *b);

/* A string, or the key of an object's member, which `val` is. */
static inline struct str json_str(yyjson_val *val) {
    return str_make(unsafe_yyjson_get_str(val), unsafe_yyjson_get_len(val));
}
/* Iteration over a container, which `container` is: starts with json_first(container) and continues
 * with json_next(element), json_count(container) times. In an object these are the keys; a key's
 * value is json_value(key), and the next key is json_next of that value; json_key is the way back
 * from a member's value. */
static inline size_t json_count(yyjson_val *container) {
    return unsafe_yyjson_get_len(container);
}
static inline yyjson_val *json_first(yyjson_val *container) {
    return unsafe_yyjson_get_first(container);
}
static inline yyjson_val *json_value(yyjson_val *key) {
    return key + 1;
}
static inline yyjson_val *json_key(yyjson_val *value) {
    return value - 1;
}
static inline yyjson_val *json_next(yyjson_val *element) {
    return unsafe_yyjson_get_next(element);
}

/* The same as a loop over values that may be absent or of another type, which have no items:
 *
 *     struct json_iter label = json_members(labels);
 *     while (json_iter_next(&label)) { … label.name … label.value … } */
struct json_iter {
    yyjson_val *value; /* the current item; valid after json_iter_next */
    struct str name;   /* of a member */
    bool of_members;
    size_t left; /* items after this one */
    yyjson_val *next;
};
static inline struct json_iter json_elements(yyjson_val *array) {
    return yyjson_is_arr(array)
               ? (struct json_iter){.left = json_count(array), .next = json_first(array)}
               : (struct json_iter){.left = 0};
}
static inline struct json_iter json_members(yyjson_val *object) {
    return yyjson_is_obj(object) ? (struct json_iter){.of_members = true,
                                                      .left = json_count(object),
                                                      .next = json_first(object)}
                                 : (struct json_iter){.left = 0};
}
/* Returns: false after the last. */
static inline bool json_iter_next(struct json_iter *iter) {
    if (iter->left == 0) {
        return false;
    }
    iter->left--;
    if (iter->of_members) {
        iter->name = json_str(iter->next);
        iter->next = json_value(iter->next);
    }
    iter->value = iter->next;
    iter->next = json_next(iter->value);
    return true;
}

/* ---- for error texts ------------------------------------------------------------------------- */

/* The words for a value: those of JSON for its authors, and plainer ones for configuration, which
 * may be YAML or protobuf text. */
enum json_words { JSON_WORDS, JSON_CONFIG_WORDS };
enum { JSON_DESCRIBED_BYTES = 80 };
/* Prints what the value is, for "got …": a string "4"; an array of 2; true. NUL-terminated; a long
 * string is cut. Returns: `out`. */
const char *json_describe(yyjson_val *val, enum json_words words, char out[JSON_DESCRIBED_BYTES]);

#endif
