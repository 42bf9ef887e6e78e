/* The typed readers of a document, and the error texts with file, line and path. */
#include <inttypes.h>
#include <stdio.h>

#include "core/base/doc/build.h"
#include "core/base/doc/doc.h"
#include "core/base/suggest.h"

enum { PATH_BYTES = 200, SHOWN_BYTES = 60 };

struct doc_node doc_root(const struct doc *doc) {
    return (struct doc_node){.doc = doc, .val = yyjson_doc_get_root(doc->tree)};
}

struct doc_node doc_get(const struct doc_node *node, const char *key) {
    return (struct doc_node){
        .doc = node->doc, .val = yyjson_obj_get(node->val, key), .parent = node, .key = key};
}

bool doc_is_present(const struct doc_node *node) {
    return node->val && !yyjson_is_null(node->val);
}

size_t doc_count(const struct doc_node *node) {
    if (!node->val) {
        return 0;
    }
    return yyjson_is_arr(node->val) ? yyjson_arr_size(node->val) : 1;
}

struct doc_node doc_at(const struct doc_node *node, size_t index) {
    if (node->val && !yyjson_is_arr(node->val)) { /* a single value: an array of one */
        struct doc_node only = *node;
        if (index > 0) {
            only.val = NULL;
        }
        return only;
    }
    return (struct doc_node){
        .doc = node->doc, .val = yyjson_arr_get(node->val, index), .parent = node, .index = index};
}

bool doc_next(const struct doc_node *list, struct doc_node *item) {
    size_t index = item->val ? item->index + 1 : 0;
    if (!yyjson_is_arr(list->val)) {
        bool only = list->val && !item->val;
        *item = only ? *list : (struct doc_node){0};
        return only;
    }
    if (index >= yyjson_arr_size(list->val)) {
        *item = (struct doc_node){0};
        return false;
    }
    yyjson_val *next =
        item->val ? unsafe_yyjson_get_next(item->val) : unsafe_yyjson_get_first(list->val);
    *item = (struct doc_node){.doc = list->doc, .val = next, .parent = list, .index = index};
    return true;
}

bool doc_next_member(const struct doc_node *object, struct doc_node *item) {
    size_t index = item->val ? item->index + 1 : 0;
    if (index >= yyjson_obj_size(object->val)) {
        *item = (struct doc_node){0};
        return false;
    }
    yyjson_val *key =
        item->val ? unsafe_yyjson_get_next(item->val) : unsafe_yyjson_get_first(object->val);
    *item = (struct doc_node){.doc = object->doc,
                              .val = yyjson_obj_iter_get_val(key),
                              .parent = object,
                              .key = yyjson_get_str(key),
                              .index = index};
    return true;
}

static unsigned val_line(const struct doc *doc, yyjson_val *val) {
    return doc->lines ? doc->lines[val - yyjson_doc_get_root(doc->tree)] : 0;
}

unsigned doc_line(const struct doc_node *node) {
    while (!node->val && node->parent) { /* an absent value has the line of its nearest present
                                            parent */
        node = node->parent;
    }
    return node->val ? val_line(node->doc, node->val) : 1;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* "input[1].dims" at `out`. Returns: its length, 0 at the root. */
static size_t path_print(const struct doc_node *node, char out[PATH_BYTES]) {
    const struct doc_node *chain[2 * DOC_MAX_DEPTH + 2];
    size_t n = 0, len = 0;
    for (; node->parent && n < sizeof(chain) / sizeof(chain[0]); node = node->parent) {
        chain[n++] = node;
    }
    out[0] = '\0';
    while (n > 0 && len < PATH_BYTES - 1) {
        const struct doc_node *step = chain[--n];
        int wrote =
            step->key ? snprintf(out + len, PATH_BYTES - len, "%s%s", len > 0 ? "." : "", step->key)
                      : snprintf(out + len, PATH_BYTES - len, "[%zu]", step->index);
        len += (size_t)wrote;
    }
    return len < PATH_BYTES ? len : PATH_BYTES - 1;
}

enum status doc_error(const struct doc_node *node, struct error *err, const char *format, ...) {
    char path[PATH_BYTES];
    va_list args;
    if (!err) {
        return ST_BAD_CONFIG;
    }
    va_start(args, format);
    error_setv(err, ST_BAD_CONFIG, format, args);
    va_end(args);
    if (!node->doc->lines) {
        const char *between = path_print(node, path) > 0 ? ": " : "";
        return error_prefix(err, "%s%s%s", node->doc->name, between, path);
    }
    if (path_print(node, path) > 0) {
        return error_prefix(err, "%s:%u: %s", node->doc->name, doc_line(node), path);
    }
    return error_prefix(err, "%s:%u", node->doc->name, doc_line(node));
}

static const char *number_print(yyjson_val *val, char out[SHOWN_BYTES]) {
    if (yyjson_is_uint(val)) {
        snprintf(out, SHOWN_BYTES, "%" PRIu64, yyjson_get_uint(val));
    } else if (yyjson_is_sint(val)) {
        snprintf(out, SHOWN_BYTES, "%" PRId64, yyjson_get_sint(val));
    } else {
        double real = yyjson_get_real(val);
        bool whole = real > -1e15 && real < 1e15 && (double)(int64_t)real == real;
        snprintf(out, SHOWN_BYTES, whole ? "%.1f" : "%.17g", real);
    }
    return out;
}

/* Describes the value, for "got …". */
static const char *val_print(yyjson_val *val, char out[SHOWN_BYTES]) {
    switch (yyjson_get_type(val)) {
    case YYJSON_TYPE_NULL:
        return "nothing (null)";
    case YYJSON_TYPE_BOOL:
        return yyjson_get_bool(val) ? "true" : "false";
    case YYJSON_TYPE_NUM:
        return number_print(val, out);
    case YYJSON_TYPE_STR: {
        bool cut = yyjson_get_len(val) > SHOWN_BYTES - 10;
        snprintf(out, SHOWN_BYTES, "\"%.*s%s\"", cut ? SHOWN_BYTES - 13 : SHOWN_BYTES - 10,
                 yyjson_get_str(val), cut ? "..." : "");
        return out;
    }
    case YYJSON_TYPE_ARR:
        snprintf(out, SHOWN_BYTES, "a list of %zu", yyjson_arr_size(val));
        return out;
    case YYJSON_TYPE_OBJ:
        return "an object";
    default:
        return "nothing";
    }
}

static enum status type_error(const struct doc_node *node, struct error *err, const char *what) {
    char shown[SHOWN_BYTES];
    return doc_error(node, err, "expected %s, got %s", what, val_print(node->val, shown));
}

/* ---- the typed readers ----------------------------------------------------------------------- */

enum status doc_read_bool(const struct doc_node *node, bool *out, struct error *err) {
    if (!node->val) {
        return ST_OK;
    }
    /* The protobuf text format writes a bool as 0 or 1, too. */
    bool number = node->doc->format == DOC_PBTXT && yyjson_is_uint(node->val) &&
                  yyjson_get_uint(node->val) <= 1;
    if (!number && !yyjson_is_bool(node->val)) {
        return type_error(node, err, "true or false");
    }
    *out = number ? yyjson_get_uint(node->val) == 1 : yyjson_get_bool(node->val);
    return ST_OK;
}

enum status doc_read_i64(const struct doc_node *node, int64_t min, int64_t max, int64_t *out,
                         struct error *err) {
    if (!node->val) {
        return ST_OK;
    }
    bool fits = yyjson_is_int(node->val) &&
                (yyjson_is_sint(node->val) || yyjson_get_uint(node->val) <= INT64_MAX);
    int64_t value = fits ? yyjson_get_sint(node->val) : 0;
    if (!fits || value < min || value > max) {
        char what[100];
        snprintf(what, sizeof(what), "a whole number from %" PRId64 " to %" PRId64, min, max);
        return type_error(node, err, what);
    }
    *out = value;
    return ST_OK;
}

enum status doc_read_f64(const struct doc_node *node, double *out, struct error *err) {
    if (!node->val) {
        return ST_OK;
    }
    if (!yyjson_is_num(node->val)) {
        return type_error(node, err, "a number");
    }
    *out = yyjson_get_num(node->val);
    return ST_OK;
}

enum status doc_read_share(const struct doc_node *node, bool allow_zero, double *out,
                           struct error *err) {
    double share = *out;
    enum status st = doc_read_f64(node, &share, err);
    bool valid = share <= 1 && (allow_zero ? share >= 0 : share > 0);
    if (st == ST_OK && node->val && !valid) {
        return allow_zero
                   ? doc_error(node, err, "expected a share from 0 to 1, got %g", share)
                   : doc_error(node, err, "expected a share above 0, of 1 at most, got %g", share);
    }
    *out = share;
    return st;
}

enum status doc_read_str(const struct doc_node *node, struct str *out, struct error *err) {
    if (!node->val) {
        return ST_OK;
    }
    if (!yyjson_is_str(node->val)) {
        return type_error(node, err,
                          yyjson_is_num(node->val) || yyjson_is_bool(node->val)
                              ? "text (in quotes, where it looks like something else)"
                              : "text");
    }
    *out = str_make(yyjson_get_str(node->val), yyjson_get_len(node->val));
    return ST_OK;
}

enum status doc_expect_object(const struct doc_node *node, struct error *err) {
    if (!node->val || yyjson_is_obj(node->val)) {
        return ST_OK;
    }
    return type_error(node, err, "an object (named fields)");
}

/* ---- unknown fields -------------------------------------------------------------------------- */

enum { NAME_MAX_CHARS = 64 }; /* shown of an unknown name in an error text */

static enum status unknown_field(const struct doc_node *node, yyjson_val *key,
                                 const char *const *names, struct error *err) {
    char path[PATH_BYTES];
    const char *dot = path_print(node, path) > 0 ? "." : "";
    struct str wrong = str_make(yyjson_get_str(key), yyjson_get_len(key));
    char hint[SUGGEST_HINT_BYTES];
    struct suggestion suggestion = {0};
    for (; *names; names++) {
        suggest_consider(&suggestion, wrong, str_of(*names));
    }
    int cut = wrong.len > NAME_MAX_CHARS ? NAME_MAX_CHARS : (int)wrong.len;
    return error_set(err, ST_BAD_CONFIG, "%s:%u: unknown field \"%s%s%.*s\"%s", node->doc->name,
                     val_line(node->doc, key), path, dot, cut, wrong.ptr,
                     suggest_hint(&suggestion, hint));
}

enum status doc_reject_unknown(const struct doc_node *node, const char *const *names,
                               struct error *err) {
    size_t i, max;
    yyjson_val *key, *value;
    if (!yyjson_is_obj(node->val) || !node->doc->lines) {
        return ST_OK;
    }
    yyjson_obj_foreach(node->val, i, max, key, value) {
        const char *const *name = names;
        while (*name && !yyjson_equals_str(key, *name)) {
            name++;
        }
        if (!*name) {
            return unknown_field(node, key, names, err);
        }
    }
    return ST_OK;
}
