/* Paths and descriptions of values, for messages. It refuses to be fast: it runs once, for the
 * value that ends a request. */
#include "codec/json/path.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    KEY_BYTES = 40,      /* of a key or a text in a message; the rest is cut */
    DESCRIBE_BYTES = 80, /* room for what a value is */
};

static const char ellipsis[] = "…";

/* Text that is cut where it gets too long. */
struct text {
    char *data;
    size_t len;
    size_t cap;
    bool cut;
};

static void text_add(struct text *text, const char *data, size_t n_bytes) {
    if (text->cut) {
        return;
    }
    if (n_bytes > text->cap - text->len - sizeof(ellipsis)) {
        data = ellipsis;
        n_bytes = sizeof(ellipsis) - 1;
        text->cut = true;
    }
    memcpy(text->data + text->len, data, n_bytes);
    text->len += n_bytes;
    text->data[text->len] = '\0';
}

/* Length of `s` without what makes it longer than KEY_BYTES, cut between characters. */
static size_t cut_length(struct str s) {
    size_t len = s.len;
    if (len > KEY_BYTES) {
        for (len = KEY_BYTES; len > KEY_BYTES - 3 && (s.ptr[len] & 0xc0) == 0x80; len--) {
        }
    }
    return len;
}

static void text_add_quoted(struct text *text, struct str s) {
    size_t len = cut_length(s);
    text_add(text, "\"", 1);
    for (size_t i = 0; i < len; i++) {
        text_add(text, s.ptr[i] != '\0' ? s.ptr + i : "?", 1);
    }
    if (len < s.len) {
        text_add(text, ellipsis, sizeof(ellipsis) - 1);
    }
    text_add(text, "\"", 1);
}

/* ---- paths ----------------------------------------------------------------------------------- */

static bool is_plain_key(struct str key) {
    for (size_t i = 0; i < key.len; i++) {
        char c = key.ptr[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (!letter && (i == 0 || c < '0' || c > '9')) {
            return false;
        }
    }
    return key.len > 0 && key.len <= KEY_BYTES;
}

static void add_key(struct text *text, struct str key) {
    if (is_plain_key(key)) {
        if (text->len > 0) {
            text_add(text, ".", 1);
        }
        text_add(text, key.ptr, key.len);
    } else {
        text_add(text, "[", 1);
        text_add_quoted(text, key);
        text_add(text, "]", 1);
    }
}

/* Adds the step from `container` towards `val`, which is in it. Returns: the next value on the
 * way. */
static yyjson_val *add_step(struct text *text, yyjson_val *container, yyjson_val *val) {
    bool object = unsafe_yyjson_is_obj(container);
    yyjson_val *child = unsafe_yyjson_get_first(container);
    yyjson_val *key = NULL;
    size_t index = 0;
    for (;; index++) {
        if (object) {
            key = child;
            child = child + 1;
        }
        if (val < unsafe_yyjson_get_next(child)) {
            break;
        }
        child = unsafe_yyjson_get_next(child);
    }
    if (object) {
        add_key(text, str_make(unsafe_yyjson_get_str(key), unsafe_yyjson_get_len(key)));
    } else {
        char step[24];
        int n = snprintf(step, sizeof(step), "[%zu]", index);
        text_add(text, step, (size_t)n);
    }
    return child;
}

const char *json_path_print(const struct json_tree *tree, yyjson_val *val,
                            char out[JSON_PATH_BYTES]) {
    struct text text = {.data = out, .cap = JSON_PATH_BYTES};
    assert(val >= tree->root && val < tree->end);
    out[0] = '\0';
    if (tree->path_has_root_name || val == tree->root) {
        text_add(&text, tree->root_name, strlen(tree->root_name));
    }
    for (yyjson_val *at = tree->root; at < val && !text.cut;) {
        at = add_step(&text, at, val);
    }
    return out;
}

/* ---- what a value is ------------------------------------------------------------------------- */

/* As JSON prints it: a real has its point or exponent. */
static void describe_number(yyjson_val *val, struct text *text) {
    char memory[1024];
    yyjson_alc pool;
    size_t n = 0;
    yyjson_alc_pool_init(&pool, memory, sizeof(memory));
    const char *number =
        yyjson_val_write_opts(val, YYJSON_WRITE_ALLOW_INF_AND_NAN, &pool, &n, NULL);
    text_add(text, number ? number : "a number", number ? n : 8);
}

static void describe_count(struct text *text, const char *kind, size_t n) {
    char words[48];
    int len = snprintf(words, sizeof(words), "%s of %zu", kind, n);
    text_add(text, words, (size_t)len);
}

static void describe_value(yyjson_val *val, char out[DESCRIBE_BYTES]) {
    struct text text = {.data = out, .cap = DESCRIBE_BYTES};
    struct str s = {NULL, 0};
    out[0] = '\0';
    switch (unsafe_yyjson_get_type(val)) {
    case YYJSON_TYPE_STR:
        text_add(&text, "a string ", 9);
        text_add_quoted(&text, str_make(unsafe_yyjson_get_str(val), unsafe_yyjson_get_len(val)));
        break;
    case YYJSON_TYPE_RAW: /* a number that fits no type */
        s = str_make(unsafe_yyjson_get_raw(val), unsafe_yyjson_get_len(val));
        text_add(&text, s.ptr, cut_length(s));
        if (s.len > KEY_BYTES) {
            text_add(&text, ellipsis, sizeof(ellipsis) - 1);
        }
        break;
    case YYJSON_TYPE_NUM:
        describe_number(val, &text);
        break;
    case YYJSON_TYPE_BOOL:
        text_add(&text, unsafe_yyjson_get_bool(val) ? "true" : "false",
                 unsafe_yyjson_get_bool(val) ? 4 : 5);
        break;
    case YYJSON_TYPE_ARR:
        describe_count(&text, "an array", unsafe_yyjson_get_len(val));
        break;
    case YYJSON_TYPE_OBJ:
        describe_count(&text, "an object", unsafe_yyjson_get_len(val));
        break;
    default:
        text_add(&text, "null", 4);
        break;
    }
}

/* ---- refusing -------------------------------------------------------------------------------- */

enum status json_error(const struct json_tree *tree, yyjson_val *val, enum status status,
                       struct error *err, const char *format, ...) {
    char path[JSON_PATH_BYTES], sentence[ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof(sentence), format, args);
    va_end(args);
    return error_set(err, status, "%s: %s", json_path_print(tree, val, path), sentence);
}

enum status json_error_got(const struct json_tree *tree, yyjson_val *val, enum status status,
                           struct error *err, const char *format, ...) {
    char path[JSON_PATH_BYTES], got[DESCRIBE_BYTES], sentence[ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof(sentence), format, args);
    va_end(args);
    describe_value(val, got);
    return error_set(err, status, "%s: %s, got %s", json_path_print(tree, val, path), sentence,
                     got);
}

enum status json_error_missing(const struct json_tree *tree, yyjson_val *object, const char *key,
                               const char *expected, struct error *err) {
    char path[JSON_PATH_BYTES] = "";
    if (object != tree->root || tree->path_has_root_name) {
        json_path_print(tree, object, path);
    }
    return error_set(err, ST_BAD_FIELD, "%s%s%s: missing; expected %s", path,
                     path[0] != '\0' ? "." : "", key, expected);
}
