/* The typed readers of a document, and the error texts with file, line and path. */
#include <inttypes.h>
#include <stdio.h>

#include "core/base/doc/build.h"
#include "core/base/doc/doc.h"
#include "core/base/num.h"
#include "core/base/suggest.h"

enum { PATH_BYTES = 200 };

struct doc_node doc_root(const struct doc *doc) {
    return (struct doc_node){.doc = doc, .val = doc->tree->root};
}

struct doc_node doc_get(const struct doc_node *node, const char *key) {
    return (struct doc_node){
        .doc = node->doc, .val = json_member(node->val, key), .parent = node, .key = key};
}

bool doc_is_present(const struct doc_node *node) {
    return node->val && !json_is_null(node->val);
}

bool doc_is_text(const struct doc_node *node) {
    return json_is_string(node->val);
}

bool doc_is_whole(const struct doc_node *node) {
    return json_is_whole(node->val);
}

bool doc_is_list(const struct doc_node *node) {
    return json_is_array(node->val);
}

bool doc_is_object(const struct doc_node *node) {
    return json_is_object(node->val);
}

size_t doc_count(const struct doc_node *node) {
    if (!node->val) {
        return 0;
    }
    return json_is_array(node->val) ? json_count(node->val) : 1;
}

struct doc_node doc_at(const struct doc_node *node, size_t index) {
    if (node->val && !json_is_array(node->val)) { /* a single value: an array of one */
        struct doc_node only = *node;
        if (index > 0) {
            only.val = NULL;
        }
        return only;
    }
    return (struct doc_node){
        .doc = node->doc, .val = json_element(node->val, index), .parent = node, .index = index};
}

bool doc_next(const struct doc_node *list, struct doc_node *item) {
    size_t index = item->val ? item->index + 1 : 0;
    if (!json_is_array(list->val)) {
        bool only = list->val && !item->val;
        *item = only ? *list : (struct doc_node){0};
        return only;
    }
    if (index >= json_count(list->val)) {
        *item = (struct doc_node){0};
        return false;
    }
    yyjson_val *next = item->val ? json_next(item->val) : json_first(list->val);
    *item = (struct doc_node){.doc = list->doc, .val = next, .parent = list, .index = index};
    return true;
}

bool doc_next_member(const struct doc_node *object, struct doc_node *item) {
    size_t index = item->val ? item->index + 1 : 0;
    if (!json_is_object(object->val) || index >= json_count(object->val)) {
        *item = (struct doc_node){0};
        return false;
    }
    yyjson_val *key = item->val ? json_next(item->val) : json_first(object->val);
    *item = (struct doc_node){.doc = object->doc,
                              .val = json_value(key),
                              .parent = object,
                              .key = json_str(key).ptr,
                              .index = index};
    return true;
}

static unsigned val_line(const struct doc *doc, yyjson_val *val) {
    return doc->lines ? doc->lines[val - doc->tree->root] : 0;
}

unsigned doc_line(const struct doc_node *node) {
    while (!node->val && node->parent) { /* an absent value has the line of its nearest present
                                            parent */
        node = node->parent;
    }
    return node->val ? val_line(node->doc, node->val) : 1;
}

const char *doc_place_print(const struct doc_node *node, char out[DOC_PLACE_BYTES]) {
    const char *slash = strrchr(node->doc->name, '/');
    const char *name = slash ? slash + 1 : node->doc->name;
    if (node->doc->format == DOC_JSON) {
        snprintf(out, DOC_PLACE_BYTES, "%.100s", name);
    } else {
        snprintf(out, DOC_PLACE_BYTES, "%.100s, line %u", name, doc_line(node));
    }
    return out;
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

enum status doc_errorv(const struct doc_node *node, struct error *err, const char *format,
                       va_list args) {
    char path[PATH_BYTES];
    if (!err) {
        return ST_BAD_CONFIG;
    }
    error_setv(err, ST_BAD_CONFIG, format, args);
    if (!node->doc->lines) {
        const char *between = path_print(node, path) > 0 ? ": " : "";
        return error_prefix(err, "%s%s%s", node->doc->name, between, path);
    }
    if (path_print(node, path) > 0) {
        return error_prefix(err, "%s:%u: %s", node->doc->name, doc_line(node), path);
    }
    return error_prefix(err, "%s:%u", node->doc->name, doc_line(node));
}

enum status doc_error(const struct doc_node *node, struct error *err, const char *format, ...) {
    va_list args;
    va_start(args, format);
    enum status status = doc_errorv(node, err, format, args);
    va_end(args);
    return status;
}

static enum status type_error(const struct doc_node *node, struct error *err, const char *what) {
    char got[JSON_DESCRIBED_BYTES];
    return doc_error(node, err, "expected %s, got %s", what,
                     json_describe(node->val, JSON_CONFIG_WORDS, got));
}

/* ---- the typed readers ----------------------------------------------------------------------- */

enum status doc_read_bool(const struct doc_node *node, bool *out, struct error *err) {
    int64_t digit;
    if (!node->val || json_get_bool(node->val, out)) {
        return ST_OK;
    }
    /* The protobuf text format writes a bool as 0 or 1, too. */
    if (node->doc->format != DOC_PBTXT || !json_get_i64(node->val, 0, 1, &digit)) {
        return type_error(node, err, "true or false");
    }
    *out = digit == 1;
    return ST_OK;
}

enum status doc_read_i64(const struct doc_node *node, int64_t min, int64_t max, int64_t *out,
                         struct error *err) {
    if (!node->val || json_get_i64(node->val, min, max, out)) {
        return ST_OK;
    }
    /* JSON of protobuf messages writes 64-bit numbers as strings, and lets others be. */
    int64_t number;
    if (node->doc->format == DOC_JSON && doc_is_text(node) &&
        num_parse_i64(json_str(node->val), &number) && number >= min && number <= max) {
        *out = number;
        return ST_OK;
    }
    char what[100];
    snprintf(what, sizeof(what), "a whole number from %" PRId64 " to %" PRId64, min, max);
    return type_error(node, err, what);
}

enum status doc_read_f64(const struct doc_node *node, double *out, struct error *err) {
    return !node->val || json_get_f64(node->val, out) ? ST_OK : type_error(node, err, "a number");
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
    if (!node->val || json_get_string(node->val, out)) {
        return ST_OK;
    }
    return type_error(node, err,
                      json_is_number(node->val) || json_is_bool(node->val)
                          ? "text (in quotes, where it looks like something else)"
                          : "text");
}

enum status doc_expect_object(const struct doc_node *node, struct error *err) {
    return !node->val || json_is_object(node->val)
               ? ST_OK
               : type_error(node, err, "an object (named fields)");
}

/* ---- unknown fields -------------------------------------------------------------------------- */

enum { NAME_MAX_CHARS = 64 }; /* shown of an unknown name in an error text */

static enum status unknown_field(const struct doc_node *node, yyjson_val *key,
                                 const char *const *names, struct error *err) {
    char path[PATH_BYTES];
    const char *dot = path_print(node, path) > 0 ? "." : "";
    struct str wrong = json_str(key);
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

static bool is_among(const char *const *names, yyjson_val *key) {
    while (*names && !json_text_is(key, *names)) {
        names++;
    }
    return *names != NULL;
}

enum status doc_reject_unknown(const struct doc_node *node, const char *const *names,
                               struct error *err) {
    struct doc_node member = {0};
    return doc_reject_unknown_after(node, names, &member, err);
}

enum status doc_reject_unknown_after(const struct doc_node *node, const char *const *names,
                                     struct doc_node *member, struct error *err) {
    while (doc_next_member(node, member) && node->doc->lines) {
        yyjson_val *key = json_key(member->val);
        if (!is_among(names, key)) {
            return unknown_field(node, key, names, err);
        }
    }
    return ST_OK;
}
