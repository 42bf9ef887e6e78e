/* Types, typed values and their descriptions, on yyjson's tree. */
#include "core/base/json_value.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- types ----------------------------------------------------------------------------------- */

enum json_kind json_kind_of(const yyjson_val *val) {
    static const unsigned char kinds[] = {
        [YYJSON_TYPE_RAW] = JSON_RAW,   [YYJSON_TYPE_NULL] = JSON_NULL,
        [YYJSON_TYPE_BOOL] = JSON_BOOL, [YYJSON_TYPE_STR] = JSON_STRING,
        [YYJSON_TYPE_ARR] = JSON_ARRAY, [YYJSON_TYPE_OBJ] = JSON_OBJECT,
    };
    if (!val) {
        return JSON_ABSENT;
    }
    switch (val->tag & YYJSON_TAG_MASK) {
    case YYJSON_TYPE_NUM | YYJSON_SUBTYPE_UINT:
        return JSON_UINT;
    case YYJSON_TYPE_NUM | YYJSON_SUBTYPE_SINT:
        return JSON_SINT;
    case YYJSON_TYPE_NUM | YYJSON_SUBTYPE_REAL:
        return JSON_REAL;
    default:
        return (enum json_kind)kinds[val->tag & YYJSON_TYPE_MASK];
    }
}

bool json_non_finite(yyjson_val *val, double *out) {
    if (!yyjson_is_raw(val)) {
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

/* ---- containers ------------------------------------------------------------------------------ */

yyjson_val *json_member(yyjson_val *object, const char *name) {
    return yyjson_obj_get(object, name);
}

yyjson_val *json_at(yyjson_val *root, const char *pointer) {
    return yyjson_ptr_get(root, pointer);
}

yyjson_val *json_element(yyjson_val *array, size_t index) {
    return yyjson_arr_get(array, index);
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
                found[i] = found[i] ? found[i] : json_given(json_value(key));
                break;
            }
        }
    }
}

bool json_equal(yyjson_val *a, yyjson_val *b) {
    return yyjson_equals(a, b);
}

/* ---- for error texts ------------------------------------------------------------------------- */

static const struct wording {
    const char *string; /* before the text */
    size_t max_bytes;   /* of the text; of a longer one `cut_bytes` are shown */
    size_t cut_bytes;
    const char *ellipsis; /* after a text that is cut */
    const char *array;    /* before the number of elements */
    const char *object;   /* before the number of members, if that is shown */
    bool counts_members;
    const char *null;
} wordings[] = {
    [JSON_WORDS] = {"a string ", 40, 40, "…", "an array of ", "an object of ", true, "null"},
    [JSON_CONFIG_WORDS] = {"", 50, 47, "...", "a list of ", "an object", false, "nothing (null)"},
};

/* Returns: the length of the whole characters in the first `max_bytes`. */
static size_t cut_length(struct str text, size_t max_bytes) {
    size_t len = max_bytes;
    while (len > max_bytes - 3 && (text.ptr[len] & 0xc0) == 0x80) {
        len--;
    }
    return len;
}

/* Prints `text`, cut where it is long, between two `quote`s. A NUL is shown as '?'. */
static void describe_text(const struct wording *words, const char *before, const char *quote,
                          struct str text, char out[JSON_DESCRIBED_BYTES]) {
    bool cut = text.len > words->max_bytes;
    size_t len = cut ? cut_length(text, words->cut_bytes) : text.len;
    char shown[JSON_DESCRIBED_BYTES];
    for (size_t i = 0; i < len; i++) {
        shown[i] = text.ptr[i] != '\0' ? text.ptr[i] : '?';
    }
    snprintf(out, JSON_DESCRIBED_BYTES, "%s%s%.*s%s%s", before, quote, (int)len, shown,
             cut ? words->ellipsis : "", quote);
}

/* Prints the shortest JSON with the number's value: a real has a point or an exponent. */
static void describe_number(yyjson_val *val, char out[JSON_DESCRIBED_BYTES]) {
    char memory[1024];
    yyjson_alc pool;
    yyjson_alc_pool_init(&pool, memory, sizeof(memory));
    const char *number =
        yyjson_val_write_opts(val, YYJSON_WRITE_ALLOW_INF_AND_NAN, &pool, NULL, NULL);
    snprintf(out, JSON_DESCRIBED_BYTES, "%s", number ? number : "a number");
}

/* Prints the double with all its digits, so that the author sees what YAML's 1.10 is. */
static void describe_config_real(double real, char out[JSON_DESCRIBED_BYTES]) {
    bool whole = real > -1e15 && real < 1e15 && (double)(int64_t)real == real;
    snprintf(out, JSON_DESCRIBED_BYTES, whole ? "%.1f" : "%.17g", real);
}

const char *json_describe(yyjson_val *val, enum json_words words, char out[JSON_DESCRIBED_BYTES]) {
    const struct wording *of = &wordings[words];
    enum json_kind kind = json_kind_of(val);
    switch (kind) {
    case JSON_STRING:
        describe_text(of, of->string, "\"", json_str(val), out);
        break;
    case JSON_RAW:
        describe_text(of, "", "", json_str(val), out);
        break;
    case JSON_UINT:
    case JSON_SINT:
    case JSON_REAL:
        if (kind == JSON_REAL && words == JSON_CONFIG_WORDS) {
            describe_config_real(val->uni.f64, out);
        } else {
            describe_number(val, out);
        }
        break;
    case JSON_BOOL:
        snprintf(out, JSON_DESCRIBED_BYTES, "%s", json_bool(val) ? "true" : "false");
        break;
    case JSON_ARRAY:
        snprintf(out, JSON_DESCRIBED_BYTES, "%s%zu", of->array, json_count(val));
        break;
    case JSON_OBJECT:
        if (of->counts_members) {
            snprintf(out, JSON_DESCRIBED_BYTES, "%s%zu", of->object, json_count(val));
        } else {
            snprintf(out, JSON_DESCRIBED_BYTES, "%s", of->object);
        }
        break;
    case JSON_NULL:
        snprintf(out, JSON_DESCRIBED_BYTES, "%s", of->null);
        break;
    case JSON_ABSENT:
        snprintf(out, JSON_DESCRIBED_BYTES, "nothing");
        break;
    }
    return out;
}
