/* Lists of header fields in an arena. */
#include "net/transport/grpc/fields.h"

#include <string.h>

#include "core/base/base64.h"
#include "core/base/buf.h"
#include "core/base/checked.h"

enum { FIRST_FIELDS = 16 };

/* Grows the list by at least one item. */
static bool make_room(struct arena *arena, struct grpc_fields *fields) {
    if (fields->n < fields->cap) {
        return true;
    }
    size_t cap = fields->cap ? fields->cap * 2 : FIRST_FIELDS;
    struct grpc_field *items =
        arena_realloc(arena, fields->items, fields->cap * sizeof(*items), cap * sizeof(*items));
    if (items) {
        fields->items = items;
        fields->cap = cap;
    }
    return items != NULL;
}

/* Appends a copy of name and value, in one allocation. Returns: false when out of memory. */
static bool append_copy(struct arena *arena, struct grpc_fields *fields, struct str name,
                        struct str value) {
    size_t n_bytes;
    char *bytes = checked_add(name.len, value.len, &n_bytes) ? arena_alloc(arena, n_bytes) : NULL;
    if (!bytes || !make_room(arena, fields)) {
        return false;
    }
    memcpy(bytes, name.ptr, name.len);
    if (value.len > 0) {
        memcpy(bytes + name.len, value.ptr, value.len);
    }
    fields->items[fields->n++] =
        (struct grpc_field){str_make(bytes, name.len), str_make(bytes + name.len, value.len)};
    return true;
}

/* Binary values that a proxy has joined with commas are split again. */
bool grpc_fields_add(struct arena *arena, struct grpc_fields *fields, struct str name,
                     struct str value) {
    bool binary = str_ends_with(name, STR("-bin")), kept;
    struct str rest = value;
    do {
        struct str part = binary ? str_trim(str_cut(&rest, ',')) : value;
        kept = fields->n < GRPC_MAX_FIELDS && append_copy(arena, fields, name, part);
    } while (kept && binary && rest.ptr);
    return kept;
}

bool grpc_field_is_valid(struct str name, struct str value) {
    bool valid = true, binary = str_ends_with(name, STR("-bin"));
    for (struct str rest = value; valid && binary && rest.ptr;) {
        valid = base64_is_valid(str_trim(str_cut(&rest, ',')));
    }
    return valid;
}

enum status grpc_fields_decode(struct arena *arena, struct grpc_fields *fields, struct error *err) {
    enum status st = ST_OK;
    for (size_t i = 0; st == ST_OK && i < fields->n; i++) {
        struct grpc_field *field = &fields->items[i];
        if (str_ends_with(field->name, STR("-bin"))) {
            st = grpc_binary_metadata_parse(arena, field->value, &field->value, err);
            if (st != ST_OK) {
                error_prefix(err, "%.*s", STR_ARG(field->name));
            }
        }
    }
    return st;
}

void grpc_fields_add_encoded(struct arena *arena, struct grpc_fields *fields, size_t most,
                             struct str name, struct str value) {
    struct grpc_field field = {arena_dup(arena, name), arena_dup(arena, value)};
    if (str_ends_with(name, STR("-bin"))) {
        struct buf text;
        buf_init(&text, arena, value.len + 1);
        base64_print(&text, value);
        field.value = text.failed ? str_make(NULL, 0) : buf_str(&text);
    }
    if (field.name.ptr && field.value.ptr && fields->n < most && make_room(arena, fields)) {
        fields->items[fields->n++] = field;
    }
}

struct str grpc_fields_find(const struct grpc_field *items, size_t n_items, const char *name,
                            size_t *n) {
    struct str found = {NULL, 0}, wanted = str_of(name);
    size_t count = 0;
    for (size_t i = 0; i < n_items; i++) {
        if (str_eq(items[i].name, wanted)) {
            found = count++ == 0 ? items[i].value : found;
        }
    }
    if (n) {
        *n = count;
    }
    return found;
}
