/* Loading a configuration file: the limits that hold for every format, JSON (parsed by yyjson), and
 * the check that no object has a key twice. */
#include "core/base/doc/doc.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/base/buf.h"
#include "core/base/doc/build.h"
#include "core/base/utf8.h"

/* For the values while they are parsed; the text itself has at most DOC_MAX_BYTES. */
enum { PARSE_ARENA_BYTES = 256 << 20 };

static unsigned line_of(struct str text, size_t at) {
    unsigned line = 1;
    for (size_t i = 0; i < at && i < text.len; i++) {
        line += text.ptr[i] == '\n';
    }
    return line;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* A character that ends a number or a word. */
static bool is_token_end(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == ',' || c == ':' || c == ']' ||
           c == '}';
}

/* The end of the string or word that starts at `at` in valid JSON. */
static size_t token_end(struct str text, size_t at) {
    if (text.ptr[at] == '"') {
        for (at++; text.ptr[at] != '"'; at++) {
            at += text.ptr[at] == '\\';
        }
        return at + 1;
    }
    while (at < text.len && !is_token_end(text.ptr[at])) {
        at++;
    }
    return at;
}

/* Stores the line of each value. The values are in the order of the text: preorder, keys included.
 * `text` is valid JSON with doc->tree's values. */
static enum status json_lines(const struct doc_source *source, struct doc *doc) {
    struct str text = source->text;
    unsigned line = 1, depth = 0;
    size_t n = 0;
    doc->lines = calloc(yyjson_doc_get_val_count(doc->tree), sizeof(*doc->lines));
    if (!doc->lines) {
        return doc_no_memory(source);
    }
    for (size_t at = 0; at < text.len;) {
        char c = text.ptr[at];
        if (c == '{' || c == '[') {
            if (++depth > DOC_MAX_DEPTH) {
                return doc_parse_error(source, line, "nested deeper than %d", DOC_MAX_DEPTH);
            }
            doc->lines[n++] = line;
            at++;
        } else if (is_token_end(c)) {
            depth -= c == ']' || c == '}';
            line += c == '\n';
            at++;
        } else {
            doc->lines[n++] = line;
            at = token_end(text, at);
        }
    }
    return ST_OK;
}

static yyjson_doc *read_json(struct str text, yyjson_read_err *problem) {
    /* Not changed without YYJSON_READ_INSITU; yyjson's signature has no const. */
    return yyjson_read_opts((char *)(uintptr_t)text.ptr, text.len, YYJSON_READ_NOFLAG, NULL,
                            problem);
}

static enum status json_parse(const struct doc_source *source, struct doc *doc) {
    yyjson_read_err problem;
    doc->tree = read_json(source->text, &problem);
    if (!doc->tree && problem.code == YYJSON_READ_ERROR_MEMORY_ALLOCATION) {
        return doc_no_memory(source);
    }
    if (!doc->tree) {
        return doc_parse_error(source, line_of(source->text, problem.pos), "not JSON: %s",
                               problem.msg);
    }
    return json_lines(source, doc);
}

/* ---- keys ------------------------------------------------------------------------------------ */

static int compare_keys(const void *a, const void *b) {
    yyjson_val *left = *(yyjson_val *const *)a, *right = *(yyjson_val *const *)b;
    int order = str_compare(json_str(left), json_str(right));
    return order ? order : left < right ? -1 : left > right;
}

/* `keys` has the capacity for all keys of `object`. */
static enum status check_object_keys(const struct doc_source *source, const struct doc *doc,
                                     yyjson_val *object, yyjson_val **keys) {
    size_t n = json_count(object);
    yyjson_val *key = json_first(object), *root = doc->tree->root;
    for (size_t i = 0; i < n; i++, key = json_next(json_value(key))) {
        keys[i] = key;
    }
    qsort(keys, n, sizeof(*keys), compare_keys);
    for (size_t i = 1; i < n; i++) {
        struct str first = json_str(keys[i - 1]);
        if (str_eq(first, json_str(keys[i]))) {
            return doc_parse_error(source, doc->lines[keys[i] - root],
                                   "the key \"%.*s\" is there twice; the first is in line %u",
                                   STR_ARG(first), doc->lines[keys[i - 1] - root]);
        }
    }
    return ST_OK;
}

static enum status check_keys(const struct doc_source *source, const struct doc *doc) {
    assert(doc->tree); /* it was parsed */
    size_t n = doc->tree->val_read;
    yyjson_val *root = doc->tree->root;
    yyjson_val **keys = calloc(n, sizeof(*keys));
    enum status status = keys ? ST_OK : doc_no_memory(source);
    for (size_t i = 0; status == ST_OK && i < n; i++) {
        if (json_is_object(root + i) && json_count(root + i) > 1) {
            status = check_object_keys(source, doc, root + i, keys);
        }
    }
    free(keys);
    return status;
}

/* ---- documents ------------------------------------------------------------------------------- */

static enum status check_text(const struct doc_source *source) {
    if (source->text.len > DOC_MAX_BYTES) {
        return error_set(source->err, ST_BAD_CONFIG,
                         "%s: expected at most %d bytes of configuration, got %zu", source->name,
                         DOC_MAX_BYTES, source->text.len);
    }
    size_t valid = utf8_valid_prefix(source->text.ptr, source->text.len);
    if (valid < source->text.len) {
        return doc_parse_error(source, line_of(source->text, valid),
                               "expected UTF-8 text, got the byte 0x%02x",
                               (unsigned char)source->text.ptr[valid]);
    }
    return ST_OK;
}

static enum status parse_values(const struct doc_source *source, struct doc *doc) {
    struct doc_value *root = NULL;
    enum status status = check_text(source);
    if (status != ST_OK) {
        return status;
    }
    switch (doc->format) {
    case DOC_JSON:
        status = json_parse(source, doc);
        break;
    case DOC_YAML:
    case DOC_YAML_MULTI:
        status = doc_yaml_parse(source, doc->format == DOC_YAML_MULTI, &root);
        break;
    case DOC_PBTXT:
        status = doc_pbtxt_parse(source, &root);
        break;
    }
    if (status == ST_OK && root) {
        status = doc_build(source, root, doc);
    }
    return status == ST_OK ? check_keys(source, doc) : status;
}

enum status doc_parse(enum doc_format format, const char *name, struct str text, struct doc **out,
                      struct error *err) {
    struct doc_source source = {.name = name, .text = text, .err = err};
    struct doc *doc = calloc(1, sizeof(*doc));
    enum status status = ST_OK;
    source.arena = arena_new(NULL, PARSE_ARENA_BYTES);
    if (doc) {
        doc->format = format;
        doc->name = strdup(name);
    }
    if (!doc || !doc->name || !source.arena) {
        status = doc_no_memory(&source);
    } else {
        status = parse_values(&source, doc);
    }
    arena_free(source.arena);
    if (status != ST_OK) {
        doc_free(doc);
        doc = NULL;
    }
    *out = doc;
    return status;
}

enum status doc_of_tree(const char *name, yyjson_doc *tree, struct doc **out, struct error *err) {
    struct doc *doc = calloc(1, sizeof(*doc));
    char *copy = strdup(name);
    if (!tree || !doc || !copy) {
        free(copy);
        free(doc);
        yyjson_doc_free(tree);
        return error_no_memory(err, "reading %s", name);
    }
    *doc = (struct doc){.format = DOC_JSON, .tree = tree, .name = copy};
    *out = doc;
    return ST_OK;
}

enum status doc_parse_answer(const char *name, struct str text, struct doc **out,
                             struct error *err) {
    yyjson_read_err problem;
    yyjson_doc *tree = read_json(text, &problem);
    if (!tree && problem.code != YYJSON_READ_ERROR_MEMORY_ALLOCATION) {
        return error_set(err, ST_BAD_JSON, "%s", problem.msg);
    }
    return doc_of_tree(name, tree, out, err);
}

void doc_free(struct doc *doc) {
    if (doc) {
        yyjson_doc_free(doc->tree);
        free(doc->lines);
        free(doc->name);
        free(doc);
    }
}

/* Reads to the end of the file, or one byte past the limit, for which doc_parse reports an
 * error. */
static enum status read_file(int fd, struct buf *out, const char *path, struct error *err) {
    for (;;) {
        char *to = buf_reserve(out, 64 << 10);
        if (!to) {
            return error_no_memory(err, "reading %s", path);
        }
        ssize_t n = read(fd, to, 64 << 10);
        if (n < 0 && errno != EINTR) {
            return error_set(err, ST_IO, "%s: cannot read: %s", path, strerror(errno));
        }
        if (n > 0) {
            buf_advance(out, (size_t)n);
        }
        if (n == 0 || out->len > DOC_MAX_BYTES) {
            return ST_OK;
        }
    }
}

enum status doc_load(enum doc_format format, const char *path, struct doc **out,
                     struct error *err) {
    *out = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return error_set(err, status_of_errno(errno, ST_IO), "%s: cannot open: %s", path,
                         strerror(errno));
    }
    struct arena *arena = arena_new(NULL, 0);
    struct buf text = {0};
    enum status status = error_no_memory(err, "reading %s", path);
    if (arena) {
        buf_init(&text, arena, 0);
        status = read_file(fd, &text, path, err);
    }
    if (status == ST_OK) {
        status = doc_parse(format, path, buf_str(&text), out, err);
    }
    arena_free(arena);
    close(fd);
    return status;
}
