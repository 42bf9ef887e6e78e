/* The reader that keeps its first error, and the tables of members. */
#include "core/base/doc/reader.h"

#include <assert.h>
#include <stdio.h>

#include "core/base/num.h"

/* ---- the first error ------------------------------------------------------------------------- */

void doc_reader_fail(struct doc_reader *reader, const struct doc_node *node, const char *format,
                     ...) {
    va_list args;
    va_start(args, format);
    if (doc_reader_ok(reader)) {
        reader->status = doc_errorv(node, reader->err, format, args);
    }
    va_end(args);
}

void doc_reader_no_memory(struct doc_reader *reader) {
    if (doc_reader_ok(reader)) {
        reader->status = error_no_memory(reader->err, "%s", reader->what);
    }
}

/* Each text once: an error is met again at the end of each part around it. */
static void record_error(const struct doc_reader *reader) {
    struct doc_errors *errors = reader->errors;
    bool is_new = reader->status == ST_BAD_CONFIG && errors->n < DOC_MAX_ERRORS;
    for (size_t i = 0; is_new && i < errors->n; i++) {
        is_new = !str_is(errors->items[i], reader->err->text);
    }
    if (is_new) {
        struct str text = arena_dup(errors->arena, str_of(reader->err->text));
        errors->items[errors->n] = text;
        errors->n += text.ptr != NULL;
    }
}

enum status doc_reader_begin_part(struct doc_reader *reader) {
    enum status before = reader->status;
    if (reader->errors && before == ST_BAD_CONFIG) {
        record_error(reader);
        reader->status = ST_OK;
    }
    return before;
}

void doc_reader_end_part(struct doc_reader *reader, enum status before) {
    if (!reader->errors) {
        return;
    }
    record_error(reader);
    if (before != ST_OK && reader->status == ST_OK) {
        reader->status = before;
    }
}

void *doc_reader_calloc(struct doc_reader *reader, size_t n, size_t size) {
    void *items = doc_reader_ok(reader) ? arena_calloc(reader->arena, n, size) : NULL;
    if (!items) {
        doc_reader_no_memory(reader);
    }
    return items;
}

struct str doc_reader_place(struct doc_reader *reader, const struct doc_node *node) {
    struct error where;
    doc_error(node, &where, "%s", "");
    struct str text = str_of(where.text), place = {NULL, 0};
    while (text.len > 0 && (text.ptr[text.len - 1] == ' ' || text.ptr[text.len - 1] == ':')) {
        text.len--;
    }
    doc_reader_dup(reader, text, &place);
    return place;
}

void doc_reader_dup(struct doc_reader *reader, struct str text, struct str *out) {
    struct str copy = doc_reader_ok(reader) ? arena_dup(reader->arena, text) : str_make(NULL, 0);
    if (copy.ptr) {
        *out = copy;
    } else {
        doc_reader_no_memory(reader);
    }
}

void doc_reader_dup_lower(struct doc_reader *reader, struct str text, struct str *out) {
    char *copy = doc_reader_calloc(reader, text.len + 1, 1);
    if (copy) {
        str_copy_lower(copy, text);
        *out = str_make(copy, text.len);
    }
}

/* ---- values ---------------------------------------------------------------------------------- */

void doc_reader_expect_object(struct doc_reader *reader, const struct doc_node *node) {
    if (doc_reader_ok(reader)) {
        reader->status = doc_expect_object(node, reader->err);
    }
}

void doc_reader_bool(struct doc_reader *reader, const struct doc_node *node, bool *out) {
    if (doc_reader_ok(reader)) {
        reader->status = doc_read_bool(node, out, reader->err);
    }
}

void doc_reader_i64(struct doc_reader *reader, const struct doc_node *node, int64_t min,
                    int64_t max, int64_t *out) {
    if (doc_reader_ok(reader)) {
        reader->status = doc_read_i64(node, min, max, out, reader->err);
    }
}

void doc_reader_u64(struct doc_reader *reader, const struct doc_node *node, int64_t min,
                    int64_t max, uint64_t *out) {
    int64_t value = (int64_t)*out;
    doc_reader_i64(reader, node, min, max, &value);
    *out = (uint64_t)value;
}

void doc_reader_f64(struct doc_reader *reader, const struct doc_node *node, double *out) {
    if (doc_reader_ok(reader)) {
        reader->status = doc_read_f64(node, out, reader->err);
    }
}

void doc_reader_share(struct doc_reader *reader, const struct doc_node *node, bool allow_zero,
                      double *out) {
    if (doc_reader_ok(reader)) {
        reader->status = doc_read_share(node, allow_zero, out, reader->err);
    }
}

void doc_reader_go_duration(struct doc_reader *reader, const struct doc_node *node, void *out) {
    const struct doc_member *row = reader->row;
    struct str text = {NULL, 0};
    uint64_t ns;
    doc_reader_view(reader, node, &text);
    if (!text.ptr) {
        return;
    }
    if (!num_parse_go_duration_ns(text, &ns) || ns > (uint64_t)row->max) {
        doc_reader_fail(reader, node, "expected a time such as 200ms, 30s or 1m30s, got \"%.*s\"",
                        STR_ARG(text));
    } else if (ns < (uint64_t)row->min || (row->above_min && ns == (uint64_t)row->min)) {
        doc_reader_fail(reader, node, "%s", row->text);
    } else {
        *(uint64_t *)out = ns;
    }
}

void doc_reader_duration(struct doc_reader *reader, const struct doc_node *node, uint64_t min_ns,
                         uint64_t max_ns, uint64_t *out) {
    struct str text = {NULL, 0};
    double seconds = 0;
    uint64_t ns = 0;
    if (!node->val || !doc_reader_ok(reader)) {
        return;
    }
    if (json_get_f64(node->val, &seconds)) {
        ns = seconds >= 0 && seconds <= 1e9 ? (uint64_t)(seconds * 1e9) : UINT64_MAX;
    } else {
        doc_reader_view(reader, node, &text);
        if (text.ptr && !num_parse_duration_ns(text, &ns)) {
            doc_reader_fail(reader, node, "expected a time (250ms, 1.5s, 2m), got \"%.*s\"",
                            STR_ARG(text));
        }
    }
    if (ns < min_ns || ns > max_ns) {
        doc_reader_fail(reader, node, "expected %g to %g seconds", (double)min_ns / 1e9,
                        (double)max_ns / 1e9);
    }
    if (doc_reader_ok(reader)) {
        *out = ns;
    }
}

void doc_reader_view(struct doc_reader *reader, const struct doc_node *node, struct str *out) {
    if (doc_reader_ok(reader)) {
        reader->status = doc_read_str(node, out, reader->err);
    }
}

void doc_reader_text(struct doc_reader *reader, const struct doc_node *node, struct str *out) {
    struct str text = {NULL, 0};
    doc_reader_view(reader, node, &text);
    if (!text.ptr) {
        return;
    }
    if (memchr(text.ptr, '\0', text.len)) {
        doc_reader_fail(reader, node, "holds a NUL byte");
    }
    doc_reader_dup(reader, text, out);
}

void doc_words_print(char *out, size_t n_bytes, const char *const *words, const char *before_last) {
    size_t len = 0;
    for (size_t i = 0; words[i] && len < n_bytes; i++) {
        const char *between = i == 0 ? "" : words[i + 1] ? ", " : before_last;
        len += (size_t)snprintf(out + len, n_bytes - len, "%s%s", between, words[i]);
    }
}

void doc_reader_word(struct doc_reader *reader, const struct doc_node *node,
                     const char *const *words, const char *expected, unsigned *out) {
    char list[200];
    struct str text = {NULL, 0};
    doc_reader_view(reader, node, &text);
    for (unsigned i = 0; text.ptr && words[i]; i++) {
        if (str_is(text, words[i])) {
            *out = i;
            return;
        }
    }
    if (!text.ptr) {
        return;
    }
    if (!expected) {
        doc_words_print(list, sizeof(list), words, " or ");
    }
    doc_reader_fail(reader, node, "expected %s, got \"%.*s\"", expected ? expected : list,
                    STR_ARG(text));
}

void *doc_reader_list(struct doc_reader *reader, const struct doc_node *list, size_t size,
                      size_t *n) {
    *n = doc_count(list);
    void *items = doc_reader_calloc(reader, *n, size);
    *n = items ? *n : 0;
    return items;
}

bool doc_reader_next(const struct doc_reader *reader, const struct doc_node *list,
                     struct doc_node *item) {
    return doc_reader_ok(reader) && doc_next(list, item);
}

bool doc_reader_next_part(const struct doc_reader *reader, const struct doc_node *list,
                          struct doc_node *item) {
    bool goes_on = doc_reader_ok(reader) || (reader->errors && reader->status == ST_BAD_CONFIG);
    return goes_on && doc_next(list, item);
}

/* ---- members --------------------------------------------------------------------------------- */

static void reject_each_unknown(struct doc_reader *reader, const struct doc_node *node,
                                const char *const *names) {
    struct doc_node member = {0};
    do {
        enum status before = doc_reader_begin_part(reader);
        reader->status = doc_reject_unknown_after(node, names, &member, reader->err);
        doc_reader_end_part(reader, before);
    } while (member.val);
}

void doc_reader_reject_unknown(struct doc_reader *reader, const struct doc_node *node,
                               const struct doc_member *members, const struct doc_member *more) {
    const char *names[DOC_MAX_MEMBERS + 1];
    size_t n = 0;
    for (; members->name; members++) {
        assert(n < DOC_MAX_MEMBERS);
        names[n++] = members->name;
    }
    for (; more && more->name; more++) {
        assert(n < DOC_MAX_MEMBERS);
        names[n++] = more->name;
    }
    names[n] = NULL;
    if (reader->errors) {
        reject_each_unknown(reader, node, names);
    } else if (doc_reader_ok(reader)) {
        reader->status = doc_reject_unknown(node, names, reader->err);
    }
}

/* The value is the default of its type, or absent. */
static bool is_default(const struct doc_node *node, const struct doc_member *member) {
    yyjson_val *val = node->val;
    bool boolean;
    double number;
    return !doc_is_present(node) || (json_get_bool(val, &boolean) && !boolean) ||
           json_text_is(val, "") || (member->words && json_text_is(val, member->words[0])) ||
           (json_get_f64(val, &number) && number == 0) ||
           (json_is_array(val) && json_count(val) == 0) ||
           (member->kind == DOC_MEMBER_IGNORED && json_is_object(val) && json_count(val) == 0);
}

static void read_unused(struct doc_reader *reader, const struct doc_node *node,
                        const struct doc_member *member) {
    bool refused = member->kind == DOC_MEMBER_REFUSED;
    if (is_default(node, member)) {
        return;
    }
    if (member->kind == DOC_MEMBER_IGNORED) {
        if (reader->on_ignored) {
            reader->on_ignored(reader, node, member->text);
        }
        return;
    }
    if (member->kind == DOC_MEMBER_REFUSED_TRUE) {
        doc_reader_bool(reader, node, &refused);
    }
    if (refused) {
        doc_reader_fail(reader, node, "%s", member->text);
    }
}

static void store_whole(void *field, enum doc_store store, int64_t value) {
    switch (store) {
    case DOC_STORE_NONE:
        break;
    case DOC_STORE_BOOL:
        *(bool *)field = value != 0;
        break;
    case DOC_STORE_U16:
        *(uint16_t *)field = (uint16_t)value;
        break;
    case DOC_STORE_U32:
        *(uint32_t *)field = (uint32_t)value;
        break;
    case DOC_STORE_U64:
        *(uint64_t *)field = (uint64_t)value;
        break;
    case DOC_STORE_I64:
        *(int64_t *)field = value;
        break;
    case DOC_STORE_F32:
        *(float *)field = (float)value;
        break;
    case DOC_STORE_F64:
        *(double *)field = (double)value;
        break;
    }
}

static void store_number(void *field, enum doc_store store, double value) {
    if (store == DOC_STORE_F32) {
        *(float *)field = (float)value;
    } else if (store == DOC_STORE_F64) {
        *(double *)field = value;
    } else {
        store_whole(field, store, (int64_t)value);
    }
}

static void read_whole(struct doc_reader *reader, const struct doc_node *node,
                       const struct doc_member *member, void *field) {
    int64_t value = 0;
    doc_reader_i64(reader, node, member->min, member->max, &value);
    if (node->val && doc_reader_ok(reader)) {
        store_whole(field, member->store, value);
    }
}

/* A number within its bounds, or a share. */
static void read_number(struct doc_reader *reader, const struct doc_node *node,
                        const struct doc_member *member, void *field) {
    double value = 0, min = (double)member->min, max = (double)member->max;
    if (member->kind == DOC_MEMBER_SHARE) {
        doc_reader_share(reader, node, member->min == 0, &value);
    } else {
        doc_reader_f64(reader, node, &value);
        bool fits = value <= max && (member->above_min ? value > min : value >= min);
        if (node->val && !fits && member->text) {
            doc_reader_fail(reader, node, "%s", member->text);
        } else if (node->val && !fits) {
            doc_reader_fail(reader, node, "expected a number from %g to %g", min, max);
        }
    }
    if (node->val && doc_reader_ok(reader)) {
        store_number(field, member->store, value);
    }
}

static void read_member(struct doc_reader *reader, const struct doc_node *node,
                        const struct doc_member *member, void *object) {
    union {
        struct str text;
        uint64_t number;
    } unused = {.text = {NULL, 0}}; /* without an object the rows are only checked */
    void *field = object ? (char *)object + member->offset : NULL;
    field = member->unused ? &unused : field;
    void *value = field ? field : &unused;
    switch (member->kind) {
    case DOC_MEMBER_CUSTOM:
        if (member->read && doc_reader_ok(reader)) {
            reader->row = member;
            member->read(reader, node, field);
        }
        break;
    case DOC_MEMBER_BOOL:
        doc_reader_bool(reader, node, value);
        break;
    case DOC_MEMBER_WHOLE:
        read_whole(reader, node, member, value);
        break;
    case DOC_MEMBER_NUMBER:
    case DOC_MEMBER_SHARE:
        read_number(reader, node, member, value);
        break;
    case DOC_MEMBER_DURATION:
        doc_reader_duration(reader, node, (uint64_t)member->min, (uint64_t)member->max, value);
        break;
    case DOC_MEMBER_TEXT:
        doc_reader_text(reader, node, value);
        break;
    case DOC_MEMBER_WORD:
        doc_reader_word(reader, node, member->words, member->text, value);
        break;
    case DOC_MEMBER_OBJECT:
        doc_reader_object(reader, node, member->members, field);
        break;
    case DOC_MEMBER_IGNORED:
    case DOC_MEMBER_REFUSED:
    case DOC_MEMBER_REFUSED_TRUE:
        read_unused(reader, node, member);
        break;
    }
    bool noted = member->unused ? unused.number != 0 : doc_is_present(node);
    if (member->note && noted && reader->on_ignored && doc_reader_ok(reader)) {
        reader->on_ignored(reader, node, member->note);
    }
}

void doc_reader_members(struct doc_reader *reader, const struct doc_node *node,
                        const struct doc_member *members, void *object) {
    for (; members->name && (reader->errors || doc_reader_ok(reader)); members++) {
        struct doc_node member = doc_get(node, members->name);
        enum status before = doc_reader_begin_part(reader);
        read_member(reader, &member, members, object);
        if (members->check && doc_reader_ok(reader)) {
            members->check(reader, &member, object);
        }
        doc_reader_end_part(reader, before);
    }
}

void doc_reader_object(struct doc_reader *reader, const struct doc_node *node,
                       const struct doc_member *members, void *object) {
    if (!node->val) {
        return;
    }
    doc_reader_expect_object(reader, node);
    if (doc_reader_ok(reader)) {
        doc_reader_reject_unknown(reader, node, members, NULL);
        doc_reader_members(reader, node, members, object);
    }
}

void doc_reader_presets(const struct doc_member *members, void *object) {
    for (; members->name; members++) {
        if (!members->unused) {
            store_number((char *)object + members->offset, members->store, members->preset);
        }
    }
}
