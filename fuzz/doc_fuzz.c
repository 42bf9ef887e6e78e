/* Configuration documents: a letter selects the format (p: protobuf text, j: JSON, else YAML),
 * the rest is the text. Every value is read by every typed reader; each succeeds or gives an
 * error with the document's name, and every line number is valid. */
#include <stdio.h>

#include "core/base/doc/doc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds, const struct error *err) {
    if (!holds) {
        fprintf(stderr, "%s\n", err->text);
        __builtin_trap();
    }
}

static void check_status(enum status status, const struct error *err) {
    check(status == ST_OK || (status == ST_BAD_CONFIG && strncmp(err->text, "doc:", 4) == 0), err);
}

static void read_all(const struct doc_node *node, unsigned n_lines) {
    static const char *const names[] = {"name", "input", NULL};
    struct error err = {0};
    bool boolean;
    int64_t integer = 0;
    double real;
    struct str text;
    check(doc_line(node) >= 1 && doc_line(node) <= n_lines, &err);
    check_status(doc_read_bool(node, &boolean, &err), &err);
    check_status(doc_read_i64(node, -5, 5, &integer, &err), &err);
    check(integer >= -5 && integer <= 5, &err);
    check_status(doc_read_f64(node, &real, &err), &err);
    check_status(doc_read_str(node, &text, &err), &err);
    check_status(doc_expect_object(node, &err), &err);
    check_status(doc_reject_unknown(node, names, &err), &err);
    check(doc_error(node, &err, "%s", "x") == ST_BAD_CONFIG, &err);
}

/* The tree is at most 64 deep. */
static void walk(const struct doc_node *node, unsigned n_lines) {
    read_all(node, n_lines);
    if (yyjson_is_obj(node->val)) {
        size_t i, n;
        yyjson_val *key, *val;
        yyjson_obj_foreach(node->val, i, n, key, val) {
            const char *name = yyjson_get_str(key);
            if (strlen(name) == yyjson_get_len(key)) { /* doc_get takes names without a NUL */
                struct doc_node child = doc_get(node, name);
                check(child.val != NULL, &(struct error){.text = "a key that is not found"});
                walk(&child, n_lines);
            }
        }
    } else if (yyjson_is_arr(node->val)) {
        for (size_t i = 0; i < doc_count(node); i++) {
            struct doc_node child = doc_at(node, i);
            walk(&child, n_lines);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) {
        return 0;
    }
    enum doc_format format = data[0] == 'p'   ? DOC_PBTXT
                             : data[0] == 'j' ? DOC_JSON
                             : data[0] == 'm' ? DOC_YAML_MULTI
                                              : DOC_YAML;
    struct str text = str_make((const char *)data + 1, size - 1);
    unsigned n_lines = 2;
    for (size_t i = 0; i < text.len; i++) {
        n_lines += text.ptr[i] == '\n' || text.ptr[i] == '\r' || text.ptr[i] == '\x85' ||
                   text.ptr[i] == '\xa8' || text.ptr[i] == '\xa9'; /* YAML's other line ends */
    }
    struct doc *doc;
    struct error err = {0};
    if (doc_parse(format, "doc", text, &doc, &err) == ST_OK) {
        struct doc_node root = doc_root(doc);
        struct doc_node absent = doc_get(&root, "not there");
        if (!absent.val) {
            check(!doc_is_present(&absent) && doc_count(&absent) == 0, &err);
        }
        walk(&root, n_lines);
        doc_free(doc);
    } else {
        check(err.status == ST_BAD_CONFIG && strncmp(err.text, "doc", 3) == 0, &err);
    }
    return 0;
}
