/* Text to tree, errors by path, values by type. A text whose tree would be too deep or too large is
 * rejected by the scan, before memory is allocated for it. The received bytes are not changed. */
#include "codec/json/tree.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "codec/json/chunks.h"
#include "codec/json/scan.h"

enum { KEY_BYTES = 40 }; /* shown of a key in a message */

static const char ellipsis[] = "…";

/* Text with a fixed capacity; the rest is cut. */
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

/* Returns: the length of `s`, or of its first KEY_BYTES, cut between characters. */
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

/* Adds the step from `container` towards `val`, which is in it. Returns: the element or member that
 * is or contains `val`. */
static yyjson_val *add_step(struct text *text, yyjson_val *container, yyjson_val *val) {
    bool object = json_is_object(container);
    yyjson_val *child = json_first(container);
    yyjson_val *key = NULL;
    size_t index = 0;
    for (;; index++) {
        if (object) {
            key = child;
            child = json_value(child);
        }
        if (val < json_next(child)) {
            break;
        }
        child = json_next(child);
    }
    if (object) {
        add_key(text, json_str(key));
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

/* ---- errors ---------------------------------------------------------------------------------- */

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
    char path[JSON_PATH_BYTES], got[JSON_DESCRIBED_BYTES], sentence[ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof(sentence), format, args);
    va_end(args);
    return error_set(err, status, "%s: %s, got %s", json_path_print(tree, val, path), sentence,
                     json_describe(val, JSON_WORDS, got));
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

/* ---- values by type -------------------------------------------------------------------------- */

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
    return json_get_string(val, out)
               ? ST_OK
               : json_error_got(tree, val, ST_BAD_FIELD, err, "expected a string");
}

enum status json_read_bool(const struct json_tree *tree, yyjson_val *val, bool *out,
                           struct error *err) {
    return json_get_bool(val, out)
               ? ST_OK
               : json_error_got(tree, val, ST_BAD_FIELD, err, "expected true or false");
}

enum status json_read_i64(const struct json_tree *tree, yyjson_val *val, int64_t min, int64_t *out,
                          struct error *err) {
    return json_get_i64(val, min, INT64_MAX, out)
               ? ST_OK
               : json_error_got(tree, val, ST_BAD_FIELD, err,
                                "expected a whole number from %" PRId64 " to %" PRId64, min,
                                INT64_MAX);
}

enum status json_read_u64(const struct json_tree *tree, yyjson_val *val, uint64_t *out,
                          struct error *err) {
    int64_t number = 0;
    enum status status = json_read_i64(tree, val, 0, &number, err);
    if (status == ST_OK) {
        *out = (uint64_t)number;
    }
    return status;
}

enum status json_expect_object(const struct json_tree *tree, yyjson_val *val, struct error *err) {
    return json_is_object(val) ? ST_OK
                               : json_error_got(tree, val, ST_BAD_FIELD, err, "expected an object");
}

enum status json_expect_array(const struct json_tree *tree, yyjson_val *val, struct error *err) {
    return json_is_array(val) ? ST_OK
                              : json_error_got(tree, val, ST_BAD_FIELD, err, "expected an array");
}

/* Values besides those of one tensor at its limit: names, shapes, parameters, other tensors. */
enum { FRAME_VALUES = 65536 };

/* ---- before the tree ------------------------------------------------------------------------- */

static enum status check_scan(const char *what, const struct json_scan *scan,
                              const struct json_limits *limits, struct error *err) {
    if (scan->depth > limits->max_json_depth) {
        return error_set(err, ST_TOO_DEEP,
                         "%s: JSON nesting depth exceeds maximum allowed limit (%" PRIu64
                         "): it is %" PRIu64 " levels deep (--max-json-depth)",
                         what, limits->max_json_depth, scan->depth);
    }
    uint64_t max_values;
    if (__builtin_add_overflow(limits->max_tensor_elements, FRAME_VALUES, &max_values)) {
        max_values = UINT64_MAX;
    }
    if (scan->n_values > max_values) {
        return error_set(err, ST_TOO_MANY_ELEMENTS,
                         "%s: the JSON has up to %" PRIu64 " values; the limit is %" PRIu64
                         " (--max-tensor-elements is %" PRIu64 ")",
                         what, scan->n_values, max_values, limits->max_tensor_elements);
    }
    return ST_OK;
}

/* Checks that only blanks follow the root. In a body, the bytes may be tensor data whose header
 * field is missing. */
static enum status check_tail(const struct json_tree *tree, struct str text, size_t end,
                              struct error *err) {
    size_t at = end;
    while (at < text.len && json_is_blank(text.ptr[at])) {
        at++;
    }
    if (at == text.len) {
        return ST_OK;
    }
    return error_set(err, ST_BAD_JSON, "%s: the JSON ends at byte %zu and %zu bytes follow it%s",
                     tree->root_name, end, text.len - end,
                     tree->is_body ? "; if they are tensor data, Inference-Header-Content-Length "
                                     "is missing or wrong (it is the length of the JSON)"
                                   : "");
}

static enum status check_words(const char *what, struct str text, const struct json_scan *scan,
                               struct error *err) {
    if (!scan->non_finite || !scan->has_unknown_word) {
        return ST_OK;
    }
    struct str word = str_make(text.ptr + scan->unknown_word_offset,
                               scan->unknown_word_bytes < 32 ? scan->unknown_word_bytes : 32);
    return error_set(err, ST_BAD_JSON,
                     "%s: malformed JSON at byte %zu: expected a value (of bare words true, false, "
                     "null, NaN, Infinity, -Infinity), got %.*s",
                     what, scan->unknown_word_offset, STR_ARG(word));
}

/* ---- the tree -------------------------------------------------------------------------------- */

static void *tree_malloc(void *context, size_t n_bytes) {
    struct json_tree *tree = context;
    /* The copy of the text is allocated first, then the block of the values: with space for all, so
     * that it need not be moved while it grows by half each time. */
    size_t needed = tree->block ? tree->values_bytes : 0;
    while (n_bytes < needed && n_bytes <= SIZE_MAX / 2) {
        n_bytes += n_bytes / 2;
    }
    tree->block = arena_alloc(tree->arena, n_bytes);
    tree->block_bytes = n_bytes;
    return tree->block;
}

static void *tree_realloc(void *context, void *ptr, size_t old_bytes, size_t n_bytes) {
    struct json_tree *tree = context;
    if (ptr == tree->block && n_bytes <= tree->block_bytes) {
        return ptr;
    }
    old_bytes = ptr == tree->block ? tree->block_bytes : old_bytes;
    void *grown = arena_realloc(tree->arena, ptr, old_bytes, n_bytes);
    if (grown && ptr == tree->block) {
        tree->block = grown;
        tree->block_bytes = n_bytes;
    }
    return grown;
}

static void tree_free(void *context, void *ptr) {
    (void)context, (void)ptr; /* freed with the arena */
}

static bool read_text(struct json_tree *tree, struct str text, yyjson_read_flag flags,
                      yyjson_read_err *why) {
    yyjson_alc memory = {tree_malloc, tree_realloc, tree_free, tree};
    /* Without YYJSON_READ_INSITU the text is only read; the cast is the interface's. */
    yyjson_doc *doc = yyjson_read_opts((char *)(uintptr_t)text.ptr, text.len,
                                       flags | YYJSON_READ_BIGNUM_AS_RAW, &memory, why);
    if (!doc) {
        return false;
    }
    tree->root = doc->root;
    tree->end = doc->root + doc->val_read;
    return true;
}

static enum status parse_error(const char *what, const yyjson_read_err *why, struct error *err) {
    if (why->code == YYJSON_READ_ERROR_MEMORY_ALLOCATION) {
        return error_no_memory(err, "the JSON of %s", what);
    }
    return error_set(err, ST_BAD_JSON, "%s: malformed JSON at byte %zu: %s", what, why->pos,
                     why->msg);
}

/* ---- small texts ----------------------------------------------------------------------------- */

enum {
    SMALL_BYTES = 4096, /* as many values at most, far below any limit */
    SHALLOW = 32,
};

/* Is the tree within `max_depth`? Returns false above SHALLOW, and the scan decides. */
static bool depth_is_within(const struct json_tree *tree, uint64_t max_depth) {
    const yyjson_val *ends[SHALLOW];
    size_t depth = 0, max = max_depth < SHALLOW ? (size_t)max_depth : SHALLOW;
    if ((size_t)(tree->end - tree->root) <= max) { /* each level has a value */
        return true;
    }
    for (yyjson_val *val = tree->root; val < tree->end; val++) {
        if (!json_is_container(val)) {
            continue;
        }
        while (depth > 0 && val >= ends[depth - 1]) {
            depth--;
        }
        if (depth == max) {
            return false;
        }
        ends[depth++] = json_next(val);
    }
    return true;
}

/* ---- parsing --------------------------------------------------------------------------------- */

enum { HEAD_VALUES = 16 }; /* in the parser's block, besides the values */

static enum status parse_large(struct json_tree *tree, struct str text,
                               const struct json_limits *limits, struct error *err) {
    struct json_scan scan;
    yyjson_read_err why;
    json_scan(text, &scan);
    enum status status = check_scan(tree->root_name, &scan, limits, err);
    if (status == ST_OK) {
        status = check_tail(tree, text, scan.end, err);
    }
    if (status == ST_OK) {
        status = check_words(tree->root_name, text, &scan, err);
    }
    if (status != ST_OK) {
        return status;
    }
    tree->non_finite = scan.non_finite;
    if (scan.n_values < SIZE_MAX / sizeof(yyjson_val) / 2) {
        tree->values_bytes = ((size_t)scan.n_values + HEAD_VALUES) * sizeof(yyjson_val);
    }
    return read_text(tree, text, scan.non_finite ? YYJSON_READ_ALLOW_INF_AND_NAN : 0, &why)
               ? ST_OK
               : parse_error(tree->root_name, &why, err);
}

static enum status parse_text(struct json_tree *tree, struct str text,
                              const struct json_limits *limits, struct error *err) {
    yyjson_read_err why;
    const char *what = tree->root_name;
    if (text.len > limits->max_json_size) {
        return error_set(err, ST_BODY_TOO_LARGE,
                         "%s: the JSON is %zu bytes long; the limit is %" PRIu64
                         " (--max-json-size)",
                         what, text.len, limits->max_json_size);
    }
    if (text.len == 0) {
        return error_set(err, ST_BAD_JSON, "%s: expected JSON, got 0 bytes", what);
    }
    /* Most requests are small and valid: a small text is parsed at once, and scanned only to find
     * out what is wrong with it, or when it has a NaN. */
    if (text.len <= SMALL_BYTES && read_text(tree, text, 0, &why) &&
        depth_is_within(tree, limits->max_json_depth)) {
        return ST_OK;
    }
    return parse_large(tree, text, limits, err);
}

enum status json_tree_parse(struct json_tree *tree, const char *root_name, struct arena *arena,
                            struct str text, const struct json_limits *limits, struct error *err) {
    *tree = (struct json_tree){.root_name = root_name, .arena = arena};
    return parse_text(tree, text, limits, err);
}

enum status json_tree_parse_body(struct json_tree *tree, const char *root_name, struct arena *arena,
                                 struct str text, const struct json_limits *limits,
                                 struct error *err) {
    *tree = (struct json_tree){.root_name = root_name, .arena = arena, .is_body = true};
    return parse_text(tree, text, limits, err);
}

enum { WORTH_DROPPING_BYTES = 4096 };

void json_tree_free_values(struct json_tree *tree) {
    if (tree->block_bytes >= WORTH_DROPPING_BYTES) {
        /* On failure the block stays as it is. */
        (void)arena_realloc(tree->arena, tree->block, tree->block_bytes, 1);
    }
    tree->block = NULL;
    tree->block_bytes = 0;
    tree->root = NULL;
    tree->end = NULL;
}

struct json_span json_value_span(yyjson_val *value) {
    return (struct json_span){value, json_next(value)};
}

enum status json_tree_check_finite(const struct json_tree *tree, const struct json_span *allowed,
                                   size_t n, struct error *err) {
    for (yyjson_val *val = tree->root; val < tree->end; val++) {
        while (n > 0 && val >= allowed->end) {
            allowed++;
            n--;
        }
        bool inside = n > 0 && val >= allowed->first;
        double number;
        if (!inside && json_non_finite(val, &number)) {
            return json_error_got(
                tree, val, ST_BAD_FIELD, err,
                "expected a finite number (NaN and infinities are only allowed in the "
                "data of FP16, BF16, FP32 and FP64 tensors)");
        }
    }
    return ST_OK;
}

enum status json_tree_parse_request(struct json_tree *tree, struct arena *arena, struct str body,
                                    const struct json_limits *limits, struct error *err) {
    enum status st = json_tree_parse(tree, "the request", arena, body, limits, err);
    if (st == ST_OK) {
        st = json_tree_check_finite(tree, NULL, 0, err);
    }
    return st == ST_OK ? json_expect_object(tree, tree->root, err) : st;
}
