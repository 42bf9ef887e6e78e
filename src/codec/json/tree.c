/* Text to tree. The scan comes first, so that a text which would become a tree too deep or too
 * large is refused before memory is taken. It refuses to build in place: the received bytes stay as
 * they came. */
#include "codec/json/tree.h"

#include <inttypes.h>

#include "codec/json/path.h"
#include "codec/json/read.h"
#include "codec/json/scan.h"

/* Values beside those of one tensor at its limit: names, shapes, parameters, other tensors. */
enum { FRAME_VALUES = 65536 };

/* ---- before the tree ------------------------------------------------------------------------- */

static enum status check_scan(const char *what, const struct json_scan *scan,
                              const struct json_limits *limits, struct error *err) {
    if (scan->depth > limits->max_json_depth) {
        return error_set(err, ST_TOO_DEEP,
                         "%s: the JSON is nested %" PRIu64 " levels deep; the limit is %" PRIu64
                         " (--max-json-depth)",
                         what, scan->depth, limits->max_json_depth);
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

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Something that is not blank behind the root: in a body perhaps tensor bytes whose JSON's length
 * was not told. */
static enum status check_tail(const struct json_tree *tree, struct str text, size_t end,
                              struct error *err) {
    size_t at = end;
    while (at < text.len && is_blank(text.ptr[at])) {
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
    /* First comes the copy of the text, then the block of the values. */
    tree->block = arena_alloc(tree->arena, n_bytes);
    tree->block_bytes = n_bytes;
    return tree->block;
}

static void *tree_realloc(void *context, void *ptr, size_t old_bytes, size_t n_bytes) {
    struct json_tree *tree = context;
    void *grown = arena_realloc(tree->arena, ptr, old_bytes, n_bytes);
    if (grown && ptr == tree->block) {
        tree->block = grown;
        tree->block_bytes = n_bytes;
    }
    return grown;
}

static void tree_free(void *context, void *ptr) {
    (void)context, (void)ptr; /* the arena does it */
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
        return error_set(err, ST_NO_MEMORY, "%s: out of memory for the JSON", what);
    }
    return error_set(err, ST_BAD_JSON, "%s: malformed JSON at byte %zu: %s", what, why->pos,
                     why->msg);
}

/* ---- small texts ----------------------------------------------------------------------------- */

enum {
    SMALL_BYTES = 4096, /* no more values than bytes, far from any limit */
    SHALLOW = 32,
};

/* Is the tree within `max_depth`? Says no to more than SHALLOW, which then the scan decides. */
static bool depth_is_within(const struct json_tree *tree, uint64_t max_depth) {
    const yyjson_val *ends[SHALLOW];
    size_t depth = 0, max = max_depth < SHALLOW ? (size_t)max_depth : SHALLOW;
    for (yyjson_val *val = tree->root; val < tree->end; val++) {
        if (!unsafe_yyjson_is_ctn(val)) {
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

/* ---- the whole ------------------------------------------------------------------------------- */

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
    /* Most requests are small and good: what costs little is parsed at once, and scanned only to
     * say what is wrong with it, or when it has a NaN. */
    if (text.len <= SMALL_BYTES && read_text(tree, text, 0, &why) &&
        depth_is_within(tree, limits->max_json_depth)) {
        return ST_OK;
    }
    return parse_large(tree, text, limits, err);
}

enum status json_tree_parse(struct json_tree *tree, const char *what, struct arena *arena,
                            struct str text, const struct json_limits *limits, struct error *err) {
    *tree = (struct json_tree){.root_name = what, .arena = arena};
    return parse_text(tree, text, limits, err);
}

enum status json_tree_parse_body(struct json_tree *tree, const char *what, struct arena *arena,
                                 struct str text, const struct json_limits *limits,
                                 struct error *err) {
    *tree = (struct json_tree){.root_name = what, .arena = arena, .is_body = true};
    return parse_text(tree, text, limits, err);
}

enum { WORTH_DROPPING_BYTES = 4096 };

void json_tree_free_values(struct json_tree *tree) {
    if (tree->block_bytes >= WORTH_DROPPING_BYTES) {
        /* A small one can only fail by leaving things as they are. */
        (void)arena_realloc(tree->arena, tree->block, tree->block_bytes, 1);
    }
    tree->block = NULL;
    tree->block_bytes = 0;
    tree->root = NULL;
    tree->end = NULL;
}

struct json_span json_value_span(yyjson_val *value) {
    return (struct json_span){value, unsafe_yyjson_get_next(value)};
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
            return json_error_got(tree, val, ST_BAD_FIELD, err,
                                  "expected a finite number (NaN and infinities only stand in the "
                                  "data of FP16, BF16, FP32 and FP64 tensors)");
        }
    }
    return ST_OK;
}
