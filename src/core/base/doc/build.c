/* Converts a parser's values to yyjson's tree, and stores the line of each. yyjson keeps a finished
 * tree as one array in preorder (a key right before its value), so the line of a value is at the
 * same index. */
#include "core/base/doc/build.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct doc_value *doc_value_new(struct arena *arena, enum doc_kind kind, unsigned line) {
    struct doc_value *value = arena_calloc(arena, 1, sizeof(*value));
    if (value) {
        value->kind = kind;
        value->line = line;
    }
    return value;
}

void doc_value_append(struct doc_value *parent, struct doc_value *child) {
    struct doc_children *children = &parent->children;
    assert(parent->kind == DOC_ARRAY || parent->kind == DOC_OBJECT);
    child->next = NULL;
    if (children->last) {
        children->last->next = child;
    } else {
        children->first = child;
    }
    children->last = child;
    children->n++;
}

enum status doc_parse_error(const struct doc_source *source, unsigned line, const char *format,
                            ...) {
    va_list args;
    va_start(args, format);
    error_setv(source->err, ST_BAD_CONFIG, format, args);
    va_end(args);
    if (source->err) {
        error_prefix(source->err, "%s:%u", source->name, line);
    }
    return ST_BAD_CONFIG;
}

enum status doc_no_memory(const struct doc_source *source) {
    return error_no_memory(source->err, "reading %s", source->name);
}

struct builder {
    yyjson_mut_doc *tree;
    unsigned *lines;
    size_t n;   /* lines filled */
    size_t cap; /* capacity */
};

static bool add_line(struct builder *builder, unsigned line) {
    if (builder->n == builder->cap) {
        size_t cap = builder->cap > 0 ? builder->cap * 2 : 64;
        unsigned *lines = realloc(builder->lines, cap * sizeof(*lines));
        if (!lines) {
            return false;
        }
        builder->lines = lines;
        builder->cap = cap;
    }
    builder->lines[builder->n++] = line;
    return true;
}

static yyjson_mut_val *copy_text(yyjson_mut_doc *tree, struct str text) {
    return yyjson_mut_strn(tree, text.ptr ? text.ptr : "", text.len);
}

static yyjson_mut_val *copy_value(struct builder *builder, const struct doc_value *value);

static yyjson_mut_val *copy_children(struct builder *builder, const struct doc_value *value) {
    bool object = value->kind == DOC_OBJECT;
    yyjson_mut_val *to = object ? yyjson_mut_obj(builder->tree) : yyjson_mut_arr(builder->tree);
    for (const struct doc_value *child = value->children.first; child; child = child->next) {
        if (object && !add_line(builder, child->key_line)) {
            return NULL;
        }
        yyjson_mut_val *copy = copy_value(builder, child);
        if (!copy) {
            return NULL;
        }
        bool added = object ? yyjson_mut_obj_add(to, copy_text(builder->tree, child->key), copy)
                            : yyjson_mut_arr_append(to, copy);
        if (!added) {
            return NULL;
        }
    }
    return to;
}

/* Recursion as deep as the document, which the parsers limit to DOC_MAX_DEPTH. */
static yyjson_mut_val *copy_value(struct builder *builder, const struct doc_value *value) {
    yyjson_mut_doc *tree = builder->tree;
    if (!add_line(builder, value->line)) {
        return NULL;
    }
    switch (value->kind) {
    case DOC_NULL:
        return yyjson_mut_null(tree);
    case DOC_BOOL:
        return yyjson_mut_bool(tree, value->boolean);
    case DOC_SINT:
        return yyjson_mut_sint(tree, value->sint);
    case DOC_UINT:
        return yyjson_mut_uint(tree, value->uint);
    case DOC_REAL:
        return yyjson_mut_real(tree, value->real);
    case DOC_STR:
        return copy_text(tree, value->text);
    case DOC_ARRAY:
    case DOC_OBJECT:
        return copy_children(builder, value);
    }
    return NULL;
}

enum status doc_build(const struct doc_source *source, const struct doc_value *root,
                      struct doc *doc) {
    struct builder builder = {.tree = yyjson_mut_doc_new(NULL)};
    yyjson_mut_val *copy = builder.tree ? copy_value(&builder, root) : NULL;
    if (copy) {
        yyjson_mut_doc_set_root(builder.tree, copy);
        doc->tree = yyjson_mut_doc_imut_copy(builder.tree, NULL);
    }
    yyjson_mut_doc_free(builder.tree);
    if (!doc->tree) {
        free(builder.lines);
        return doc_no_memory(source);
    }
    assert(yyjson_doc_get_val_count(doc->tree) == builder.n);
    doc->lines = builder.lines;
    return ST_OK;
}

/* ---- copies of some members ------------------------------------------------------------------ */

static bool add_copy(yyjson_mut_doc *tree, yyjson_mut_val *to, const char *key, yyjson_val *value) {
    return !value || yyjson_mut_obj_add_val(tree, to, key, yyjson_val_mut_copy(tree, value));
}

/* Copies "member" or "member/member". */
static bool copy_path(yyjson_mut_doc *tree, yyjson_mut_val *root, yyjson_val *object,
                      const char *path) {
    const char *slash = strchr(path, '/');
    if (!slash) {
        return add_copy(tree, root, path, json_member(object, path));
    }
    size_t n = (size_t)(slash - path);
    yyjson_val *value = json_member(yyjson_obj_getn(object, path, n), slash + 1);
    yyjson_mut_val *inner = yyjson_mut_obj_getn(root, path, n);
    if (!value) {
        return true;
    }
    if (!inner) {
        inner = yyjson_mut_obj(tree);
        if (!yyjson_mut_obj_add(root, yyjson_mut_strncpy(tree, path, n), inner)) {
            return false;
        }
    }
    return add_copy(tree, inner, slash + 1, value);
}

enum status doc_copy_members(const char *name, const struct doc_node *object,
                             const char *const *paths, struct doc **out, struct error *err) {
    yyjson_mut_doc *tree = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = yyjson_mut_obj(tree);
    bool copied = root != NULL;
    for (; copied && *paths; paths++) {
        copied = copy_path(tree, root, object->val, *paths);
    }
    yyjson_mut_doc_set_root(tree, root);
    yyjson_doc *finished = copied ? yyjson_mut_doc_imut_copy(tree, NULL) : NULL;
    yyjson_mut_doc_free(tree);
    return doc_of_tree(name, finished, out, err);
}
