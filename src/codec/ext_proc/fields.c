/* Messages of single fields, decoded by tables, so that the error text of a wrong field is the same
 * everywhere; and google.protobuf.Struct. Structs are walked with a stack of readers, one for each
 * level. The reader of a level skips the contents of its messages, so the cost of a walk is linear
 * in the number of fields, at any nesting. */
#include "codec/ext_proc/fields.h"

/* ---- messages of single fields --------------------------------------------------------------- */

enum status ext_proc_bytes_field_decode(const struct pb_field *field, const char *name,
                                        struct str *out, struct error *err) {
    *out = field->bytes;
    if (field->type != PB_BYTES) {
        return error_set(err, ST_BAD_FIELD, "%s: expected bytes or a message, got a number", name);
    }
    return ST_OK;
}

static enum status decode_number(const struct pb_field *field, const char *name, uint32_t *out,
                                 struct error *err) {
    *out = field->value < UINT32_MAX ? (uint32_t)field->value : UINT32_MAX;
    if (field->type != PB_VARINT) {
        return error_set(err, ST_BAD_FIELD, "%s: expected a number or a bool, got another type",
                         name);
    }
    return ST_OK;
}

static enum status decode_field(const struct pb_field *field,
                                const struct ext_proc_field_rule *rule, void *dest,
                                struct error *err) {
    uint32_t number = 0;
    enum status status = ST_OK;
    switch (rule->type) {
    case EXT_PROC_T_BYTES:
        return ext_proc_bytes_field_decode(field, rule->name, dest, err);
    case EXT_PROC_T_TEXT:
        return pb_get_string(field, rule->name, dest, err);
    case EXT_PROC_T_BOOL:
        status = decode_number(field, rule->name, &number, err);
        *(bool *)dest = number != 0;
        break;
    case EXT_PROC_T_MODE:
        status = decode_number(field, rule->name, &number, err);
        *(enum ext_proc_body_mode *)dest =
            number < EXT_PROC_BODY_OTHER ? (enum ext_proc_body_mode)number : EXT_PROC_BODY_OTHER;
        break;
    case EXT_PROC_T_NUMBER:
        return decode_number(field, rule->name, dest, err);
    }
    return status;
}

enum status ext_proc_field_decode(const struct pb_field *field,
                                  const struct ext_proc_field_rule *rules, void *out,
                                  struct error *err) {
    const struct ext_proc_field_rule *rule = rules;
    while (rule->number != 0 && rule->number != field->number) {
        rule++;
    }
    return rule->number != 0 ? decode_field(field, rule, (char *)out + rule->offset, err) : ST_OK;
}

enum status ext_proc_fields_decode(struct str message, const char *what,
                                   const struct ext_proc_field_rule *rules, void *out,
                                   struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    enum status status = ST_OK;
    while (status == ST_OK && pb_next(&reader, &field)) {
        status = ext_proc_field_decode(&field, rules, out, err);
    }
    return reader.error_text ? pb_reader_error(&reader, what, err) : status;
}

/* ---- checking a Struct ----------------------------------------------------------------------- */

enum { MOST_STEPS = 7 };

/* The kind of each field; the index is the field's number. */
static const enum ext_proc_node steps[][MOST_STEPS] = {
    [EXT_PROC_NODE_METADATA] = {[EXT_PROC_F_FILTER_METADATA] = EXT_PROC_NODE_NAMESPACE},
    [EXT_PROC_NODE_NAMESPACE] =
        {[EXT_PROC_F_MAP_KEY] = EXT_PROC_NODE_TEXT, [EXT_PROC_F_MAP_VALUE] = EXT_PROC_NODE_STRUCT},
    [EXT_PROC_NODE_STRUCT] = {[EXT_PROC_F_ENTRIES] = EXT_PROC_NODE_ENTRY},
    [EXT_PROC_NODE_ENTRY] =
        {[EXT_PROC_F_MAP_KEY] = EXT_PROC_NODE_TEXT, [EXT_PROC_F_MAP_VALUE] = EXT_PROC_NODE_VALUE},
    [EXT_PROC_NODE_VALUE] = {[EXT_PROC_F_VALUE_STRING] = EXT_PROC_NODE_TEXT,
                             [EXT_PROC_F_VALUE_STRUCT] = EXT_PROC_NODE_STRUCT,
                             [EXT_PROC_F_VALUE_LIST] = EXT_PROC_NODE_LIST},
    [EXT_PROC_NODE_LIST] = {[EXT_PROC_F_LIST_VALUES] = EXT_PROC_NODE_VALUE},
};

struct level {
    struct pb_reader reader;
    enum ext_proc_node node;
};

/* *inside: the kind of message in the field; EXT_PROC_NODE_IGNORED: nothing to walk into. */
static enum status check_field(const struct level *level, const struct pb_field *field,
                               const char *what, enum ext_proc_node *inside, struct error *err) {
    struct str text;
    *inside =
        field->number < MOST_STEPS ? steps[level->node][field->number] : EXT_PROC_NODE_IGNORED;
    if (*inside == EXT_PROC_NODE_IGNORED) {
        return ST_OK;
    }
    if (*inside == EXT_PROC_NODE_TEXT) {
        *inside = EXT_PROC_NODE_IGNORED;
        return pb_get_string(field, what, &text, err);
    }
    return ext_proc_bytes_field_decode(field, what, &text, err);
}

enum status ext_proc_struct_check(struct str message, enum ext_proc_node node, const char *what,
                                  struct error *err) {
    struct level levels[EXT_PROC_MAX_DEPTH];
    size_t depth = 0;
    if (message.len == 0) {
        return ST_OK;
    }
    levels[depth++] = (struct level){pb_read(message), node};
    while (depth > 0) {
        struct level *level = &levels[depth - 1];
        struct pb_field field;
        enum ext_proc_node inside;
        if (!pb_next(&level->reader, &field)) {
            if (level->reader.error_text) {
                return pb_reader_error(&level->reader, what, err);
            }
            depth--;
            continue;
        }
        enum status status = check_field(level, &field, what, &inside, err);
        if (status != ST_OK) {
            return status;
        }
        if (inside != EXT_PROC_NODE_IGNORED) {
            if (depth == EXT_PROC_MAX_DEPTH) {
                return error_set(err, ST_TOO_DEEP, "%s: nested deeper than %d messages", what,
                                 (int)EXT_PROC_MAX_DEPTH);
            }
            levels[depth++] = (struct level){pb_read(field.bytes), inside};
        }
    }
    return ST_OK;
}

/* ---- reading a checked Struct ---------------------------------------------------------------- */

/* Returns: the value of a map's last entry with that key, empty if the entry has none; ptr NULL
 * if there is no such entry. */
static struct str find_entry(struct str message, uint32_t number, struct str key) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    struct str found = {NULL, 0};
    while (pb_next(&reader, &field)) {
        if (field.number != number) {
            continue;
        }
        struct pb_reader entry = pb_read(field.bytes);
        struct str name = STR(""), value = STR("");
        while (pb_next(&entry, &field)) {
            if (field.number == EXT_PROC_F_MAP_KEY) {
                name = field.bytes;
            } else if (field.number == EXT_PROC_F_MAP_VALUE) {
                value = field.bytes;
            }
        }
        if (str_eq(name, key)) {
            found = value;
        }
    }
    return found;
}

static struct ext_proc_value read_value(struct str message) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    struct ext_proc_value value = {.kind = EXT_PROC_OTHER};
    while (pb_next(&reader, &field)) {
        if (field.number == EXT_PROC_F_VALUE_STRING) {
            value = (struct ext_proc_value){.kind = EXT_PROC_STRING, .text = field.bytes};
        } else if (field.number == EXT_PROC_F_VALUE_LIST) {
            value = (struct ext_proc_value){.kind = EXT_PROC_LIST, .list = field.bytes};
        } else if (field.number == EXT_PROC_F_VALUE_NUMBER && field.type == PB_FIXED64) {
            value = (struct ext_proc_value){.kind = EXT_PROC_NUMBER};
            memcpy(&value.number, &field.value, sizeof(value.number));
        } else if (field.number < MOST_STEPS) {
            value = (struct ext_proc_value){.kind = EXT_PROC_OTHER};
        }
    }
    return value;
}

static struct ext_proc_value find_value(struct str map, struct str key) {
    struct str value = {NULL, 0};
    if (map.ptr) {
        value = find_entry(map, EXT_PROC_F_ENTRIES, key);
    }
    return value.ptr ? read_value(value) : (struct ext_proc_value){.kind = EXT_PROC_ABSENT};
}

struct ext_proc_value ext_proc_struct_find(struct str message, uint32_t number, struct str space,
                                           struct str key) {
    return find_value(find_entry(message, number, space), key);
}

bool ext_proc_struct_has(struct str message, uint32_t number, struct str space) {
    return find_entry(message, number, space).ptr != NULL;
}

struct ext_proc_value ext_proc_struct_find_nested(struct str message, struct str space,
                                                  struct str key) {
    struct str value = find_entry(message, EXT_PROC_F_ENTRIES, space);
    struct pb_reader reader = pb_read(value.ptr ? value : STR(""));
    struct pb_field field;
    struct str map = {NULL, 0};
    while (pb_next(&reader, &field)) {
        if (field.number < MOST_STEPS) {
            map = field.number == EXT_PROC_F_VALUE_STRUCT ? field.bytes : (struct str){NULL, 0};
        }
    }
    return find_value(map, key);
}

bool ext_proc_list_next(struct pb_reader *list, struct ext_proc_value *out) {
    struct pb_field field;
    while (pb_next(list, &field)) {
        if (field.number == EXT_PROC_F_LIST_VALUES) {
            *out = read_value(field.bytes);
            return true;
        }
    }
    return false;
}

/* ---- encoding a Struct ----------------------------------------------------------------------- */

static void add_text(struct buf *out, uint32_t number, struct str text) {
    size_t value = pb_begin(out, number);
    pb_add_bytes(out, EXT_PROC_F_VALUE_STRING, text);
    pb_end(out, value);
}

/* A member of a oneof: written also where it is 0. */
static void add_number(struct buf *out, double number) {
    size_t value = pb_begin(out, EXT_PROC_F_MAP_VALUE);
    pb_add_double(out, EXT_PROC_F_VALUE_NUMBER, number);
    pb_end(out, value);
}

static void add_numbers(struct buf *out, const struct ext_proc_number *numbers, size_t n) {
    size_t value = pb_begin(out, EXT_PROC_F_MAP_VALUE);
    size_t map = pb_begin(out, EXT_PROC_F_VALUE_STRUCT);
    for (size_t i = 0; i < n; i++) {
        size_t member = pb_begin(out, EXT_PROC_F_ENTRIES);
        pb_add_bytes(out, EXT_PROC_F_MAP_KEY, numbers[i].key);
        add_number(out, numbers[i].number);
        pb_end(out, member);
    }
    pb_end(out, map);
    pb_end(out, value);
}

static void add_value(struct buf *out, const struct ext_proc_entry *entry) {
    if (entry->numbers && entry->n_list == 1 && !entry->numbers->key.ptr) {
        add_number(out, entry->numbers->number);
        return;
    }
    if (entry->numbers) {
        add_numbers(out, entry->numbers, entry->n_list);
        return;
    }
    if (!entry->list) {
        add_text(out, EXT_PROC_F_MAP_VALUE, entry->text);
        return;
    }
    size_t value = pb_begin(out, EXT_PROC_F_MAP_VALUE);
    size_t list = pb_begin(out, EXT_PROC_F_VALUE_LIST);
    for (size_t i = 0; i < entry->n_list; i++) {
        add_text(out, EXT_PROC_F_LIST_VALUES, entry->list[i]);
    }
    pb_end(out, list);
    pb_end(out, value);
}

void ext_proc_struct_add_entries(struct buf *out, const struct ext_proc_namespace *space) {
    for (size_t i = 0; i < space->n_entries; i++) {
        const struct ext_proc_entry *entry = &space->entries[i];
        size_t member = pb_begin(out, EXT_PROC_F_ENTRIES);
        pb_add_bytes(out, EXT_PROC_F_MAP_KEY, entry->key);
        add_value(out, entry);
        pb_end(out, member);
    }
}

void ext_proc_struct_add(struct buf *out, uint32_t number, const struct ext_proc_namespace *spaces,
                         size_t n, bool nested) {
    for (size_t i = 0; i < n; i++) {
        size_t start = pb_begin(out, number), map = 0;
        pb_add_bytes(out, EXT_PROC_F_MAP_KEY, spaces[i].name);
        size_t value = pb_begin(out, EXT_PROC_F_MAP_VALUE);
        if (nested) {
            map = pb_begin(out, EXT_PROC_F_VALUE_STRUCT);
        }
        ext_proc_struct_add_entries(out, &spaces[i]);
        if (nested) {
            pb_end(out, map);
        }
        pb_end(out, value);
        pb_end(out, start);
    }
}
