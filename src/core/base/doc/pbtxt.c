/* The protobuf text format without its schema: messages, fields and lists, as config.pbtxt has
 * them. A field that is given several times, or as a list, becomes an array. It refuses what only a
 * schema could explain: extensions, Any, fields by number. */
#include "core/base/doc/pbtxt.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/utf8.h"

void pbtxt_skip(struct pbtxt_reader *reader) {
    bool comment = false;
    for (; reader->at < reader->end; reader->at++) {
        char c = *reader->at;
        if (c == '\n') {
            comment = false;
            reader->line++;
        } else if (c == '#') {
            comment = true;
        } else if (!comment && c != ' ' && c != '\t' && c != '\r' && c != '\v' && c != '\f') {
            return;
        }
    }
}

char pbtxt_peek(const struct pbtxt_reader *reader) {
    return reader->at < reader->end ? *reader->at : '\0';
}

static bool starts_ident(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

struct str pbtxt_take_ident(struct pbtxt_reader *reader) {
    const char *start = reader->at;
    while (starts_ident(pbtxt_peek(reader)) ||
           (reader->at > start && pbtxt_peek(reader) >= '0' && pbtxt_peek(reader) <= '9')) {
        reader->at++;
    }
    return str_make(start, (size_t)(reader->at - start));
}

enum status pbtxt_syntax_error(const struct pbtxt_reader *reader, const char *what) {
    size_t left = (size_t)(reader->end - reader->at);
    if (left == 0) {
        return doc_parse_error(reader->source, reader->line, "expected %s, got the end of the file",
                               what);
    }
    size_t n = utf8_char_len(reader->at, left);
    if (starts_ident(*reader->at)) { /* a whole word says more than its first letter */
        while (n < left && n < 40 && starts_ident(reader->at[n])) {
            n++;
        }
    }
    return doc_parse_error(reader->source, reader->line, "expected %s, got \"%.*s\"", what, (int)n,
                           reader->at);
}

/* ---- fields that are given several times ----------------------------------------------------- */

struct member {
    struct doc_value *value;
    size_t order;
};

static int compare_members(const void *a, const void *b) {
    const struct member *left = a, *right = b;
    struct str l = left->value->key, r = right->value->key;
    int order = memcmp(l.ptr, r.ptr, l.len < r.len ? l.len : r.len);
    if (order == 0 && l.len != r.len) {
        return l.len < r.len ? -1 : 1;
    }
    if (order == 0) {
        return left->order < right->order ? -1 : 1;
    }
    return order;
}

/* Makes one array of `n` members of the same name. A list among them adds its elements. */
static struct doc_value *merge_members(struct arena *arena, const struct member *members,
                                       size_t n) {
    const struct doc_value *first = members[0].value;
    struct doc_value *array = doc_value_new(arena, DOC_ARRAY, first->line);
    if (!array) {
        return NULL;
    }
    array->key = first->key;
    array->key_line = first->key_line;
    for (size_t i = 0; i < n; i++) {
        struct doc_value *value = members[i].value;
        if (value->kind != DOC_ARRAY) {
            doc_value_append(array, value);
            continue;
        }
        for (struct doc_value *child = value->children.first; child;) {
            struct doc_value *next = child->next;
            doc_value_append(array, child);
            child = next;
        }
    }
    return array;
}

/* `members` and `slots` have room for all members of `message`. */
static bool merge_with(struct arena *arena, struct doc_value *message, struct member *members,
                       struct doc_value **slots) {
    size_t n = 0;
    for (struct doc_value *child = message->children.first; child; child = child->next) {
        slots[n] = child;
        members[n] = (struct member){child, n};
        n++;
    }
    qsort(members, n, sizeof(*members), compare_members);
    for (size_t i = 0, same; i < n; i += same) {
        for (same = 1; i + same < n; same++) {
            if (!str_eq(members[i].value->key, members[i + same].value->key)) {
                break;
            }
            slots[members[i + same].order] = NULL;
        }
        if (same > 1) {
            slots[members[i].order] = merge_members(arena, members + i, same);
            if (!slots[members[i].order]) {
                return false;
            }
        }
    }
    message->children = (struct doc_children){0};
    for (size_t i = 0; i < n; i++) {
        if (slots[i]) {
            doc_value_append(message, slots[i]);
        }
    }
    return true;
}

/* Joins fields of the same name, where the first of them stands. */
static enum status merge_repeated(struct pbtxt_reader *reader, struct doc_value *message) {
    size_t n = message->children.n;
    if (n < 2) {
        return ST_OK;
    }
    struct member *members = calloc(n, sizeof(*members));
    struct doc_value **slots = calloc(n, sizeof(*slots));
    bool ok = members && slots && merge_with(reader->source->arena, message, members, slots);
    free(members);
    free(slots);
    return ok ? ST_OK : doc_no_memory(reader->source);
}

/* ---- messages -------------------------------------------------------------------------------- */

static enum status read_fields(struct pbtxt_reader *reader, struct doc_value *message, char close);

static enum status enter_level(struct pbtxt_reader *reader) {
    if (reader->depth == DOC_MAX_DEPTH) {
        return doc_parse_error(reader->source, reader->line, "nested deeper than %d",
                               DOC_MAX_DEPTH);
    }
    reader->depth++;
    return ST_OK;
}

static bool opens_message(char c) {
    return c == '{' || c == '<';
}

/* At '{' or '<'. */
static enum status read_message(struct pbtxt_reader *reader, struct doc_value **out) {
    enum status status = enter_level(reader);
    if (status != ST_OK) {
        return status;
    }
    char close = *reader->at++ == '{' ? '}' : '>';
    *out = doc_value_new(reader->source->arena, DOC_OBJECT, reader->line);
    if (!*out) {
        return doc_no_memory(reader->source);
    }
    status = read_fields(reader, *out, close);
    reader->depth--;
    return status;
}

/* One element of a list; without a colon in front of the list only messages. */
static enum status read_element(struct pbtxt_reader *reader, bool colon, struct doc_value *list) {
    struct doc_value *value = NULL;
    enum status status;
    pbtxt_skip(reader);
    if (opens_message(pbtxt_peek(reader))) {
        status = read_message(reader, &value);
    } else if (colon) {
        status = pbtxt_read_scalar(reader, &value);
    } else {
        status =
            pbtxt_syntax_error(reader, "\"{\" or \"<\" (a list of anything else needs a colon)");
    }
    if (status == ST_OK) {
        doc_value_append(list, value);
        pbtxt_skip(reader);
    }
    return status;
}

/* At '['. */
static enum status read_list(struct pbtxt_reader *reader, bool colon, struct doc_value **out) {
    struct doc_value *list = doc_value_new(reader->source->arena, DOC_ARRAY, reader->line);
    enum status status = list ? enter_level(reader) : doc_no_memory(reader->source);
    if (status != ST_OK) {
        return status;
    }
    *out = list;
    reader->at++;
    pbtxt_skip(reader);
    if (pbtxt_peek(reader) != ']') {
        status = read_element(reader, colon, list);
        while (status == ST_OK && pbtxt_peek(reader) == ',') {
            reader->at++;
            status = read_element(reader, colon, list);
        }
    }
    if (status == ST_OK && pbtxt_peek(reader) != ']') {
        status = pbtxt_syntax_error(reader, "\",\" or \"]\"");
    }
    if (status == ST_OK) {
        reader->at++;
        reader->depth--;
    }
    return status;
}

/* What follows a field's name. */
static enum status read_value(struct pbtxt_reader *reader, struct str name,
                              struct doc_value **out) {
    pbtxt_skip(reader);
    bool colon = pbtxt_peek(reader) == ':';
    if (colon) {
        reader->at++;
        pbtxt_skip(reader);
    }
    if (opens_message(pbtxt_peek(reader))) {
        return read_message(reader, out);
    }
    if (pbtxt_peek(reader) == '[') {
        return read_list(reader, colon, out);
    }
    if (!colon) {
        char what[120];
        int cut = name.len > 60 ? 60 : (int)name.len;
        snprintf(what, sizeof(what), "\":\" or \"{\" behind \"%.*s\"", cut, name.ptr);
        return pbtxt_syntax_error(reader, what);
    }
    return pbtxt_read_scalar(reader, out);
}

static enum status read_name(struct pbtxt_reader *reader, struct str *name) {
    if (pbtxt_peek(reader) == '[') {
        return doc_parse_error(reader->source, reader->line,
                               "extensions and Any (\"[name]\") are not supported");
    }
    *name = pbtxt_take_ident(reader);
    return name->len > 0 ? ST_OK : pbtxt_syntax_error(reader, "a field's name");
}

static enum status read_field(struct pbtxt_reader *reader, struct doc_value *message) {
    struct str name = {NULL, 0};
    struct doc_value *value = NULL;
    unsigned line = reader->line;
    enum status status = read_name(reader, &name);
    if (status == ST_OK) {
        status = read_value(reader, name, &value);
    }
    if (status != ST_OK) {
        return status;
    }
    assert(value);
    value->key = name;
    value->key_line = line;
    doc_value_append(message, value);
    pbtxt_skip(reader);
    if (pbtxt_peek(reader) == ',' || pbtxt_peek(reader) == ';') {
        reader->at++;
        pbtxt_skip(reader);
    }
    return ST_OK;
}

/* Reads fields up to and with `close`, or to the end of the file where that is '\0'. */
static enum status read_fields(struct pbtxt_reader *reader, struct doc_value *message, char close) {
    enum status status = ST_OK;
    pbtxt_skip(reader);
    while (status == ST_OK && reader->at < reader->end && (close == '\0' || *reader->at != close)) {
        status = read_field(reader, message);
    }
    if (status == ST_OK && close != '\0') {
        if (reader->at == reader->end) {
            return doc_parse_error(
                reader->source, reader->line,
                "expected \"%c\" to close the \"%c\" of line %u, got the end of the "
                "file",
                close, close == '}' ? '{' : '<', message->line);
        }
        reader->at++;
    }
    return status == ST_OK ? merge_repeated(reader, message) : status;
}

enum status doc_pbtxt_parse(const struct doc_source *source, struct doc_value **root) {
    const char *text = source->text.ptr ? source->text.ptr : "";
    struct pbtxt_reader reader = {
        .source = source, .at = text, .end = text + source->text.len, .line = 1, .depth = 1};
    *root = doc_value_new(source->arena, DOC_OBJECT, 1);
    return *root ? read_fields(&reader, *root, '\0') : doc_no_memory(source);
}
