/* A stack of messages, each with its place in its descriptor: the fields are printed in the order
 * of the descriptor, wherever they are in the message. */
#include "codec/protobuf/pb_json.h"

#include <math.h>
#include <string.h>

#include "codec/protobuf/pb.h"
#include "core/base/json_writer.h"
#include "core/base/num.h"

/* FileDescriptorSet, FileDescriptorProto, DescriptorProto, EnumDescriptorProto. */
enum {
    SET_FILE = 1,
    FILE_PACKAGE = 2,
    FILE_MESSAGE = 4,
    FILE_ENUM = 5,
    NAME = 1,
    MESSAGE_FIELD = 2,
    MESSAGE_NESTED = 3,
    MESSAGE_ENUM = 4,
    MESSAGE_OPTIONS = 7,
    OPTIONS_MAP_ENTRY = 7,
    ENUM_VALUE = 2,
    VALUE_NUMBER = 2,
};

/* FieldDescriptorProto. */
enum {
    FIELD_NUMBER = 3,
    FIELD_LABEL = 4,
    FIELD_TYPE = 5,
    FIELD_TYPE_NAME = 6,
    FIELD_ONEOF = 9,
    LABEL_REPEATED = 3,
};

/* FieldDescriptorProto.Type. */
enum field_type {
    TYPE_DOUBLE = 1,
    TYPE_FLOAT = 2,
    TYPE_INT64 = 3,
    TYPE_UINT64 = 4,
    TYPE_INT32 = 5,
    TYPE_FIXED64 = 6,
    TYPE_FIXED32 = 7,
    TYPE_BOOL = 8,
    TYPE_STRING = 9,
    TYPE_MESSAGE = 11,
    TYPE_UINT32 = 13,
    TYPE_ENUM = 14,
    TYPE_SFIXED32 = 15,
    TYPE_SFIXED64 = 16,
    TYPE_SINT32 = 17,
    TYPE_SINT64 = 18,
};

enum { MAP_KEY = 1, MAP_VALUE = 2, MAX_DEPTH = 16, CACHED_TYPES = 64 };

struct field_spec {
    struct str name, type_name;
    uint64_t number, type;
    bool repeated, in_oneof;
};

/* A descriptor that was looked up, and what was read of it, as a list has many messages of it. */
struct type {
    struct str name, descriptor; /* ptr NULL: there is none */
    bool is_map;
    const struct field_spec *fields, *fields_end; /* of a message; NULL: not read yet */
};

/* A message that is being printed. */
struct frame {
    struct str message;
    const struct field_spec *spec;                    /* the current field; NULL: none yet */
    const struct field_spec *next_spec, *end_of_spec; /* those that follow */
    struct pb_reader items; /* occurrences of a repeated field that follow */
    bool in_items;
    bool is_map;
    struct field_spec key, value; /* of a map's entries */
};

struct printer {
    const struct pb_json_options *options;
    struct json_writer json;
    size_t start; /* where the message begins in json.out */
    struct frame stack[MAX_DEPTH];
    size_t depth;
    struct type types[CACHED_TYPES];
    size_t n_cached;
};

/* ---- descriptors ----------------------------------------------------------------------------- */

static bool get_field(struct str message, uint32_t number, struct pb_field *out) {
    struct pb_reader reader = pb_read(message);
    while (pb_next(&reader, out)) {
        if (out->number == number) {
            return true;
        }
    }
    return false;
}

static struct str get_text(struct str message, uint32_t number) {
    struct pb_field field;
    return get_field(message, number, &field) ? field.bytes : STR("");
}

static uint64_t get_number(struct str message, uint32_t number) {
    struct pb_field field;
    return get_field(message, number, &field) ? field.value : 0;
}

static struct field_spec read_spec(struct str descriptor) {
    struct pb_field field;
    return (struct field_spec){.name = get_text(descriptor, NAME),
                               .type_name = get_text(descriptor, FIELD_TYPE_NAME),
                               .number = get_number(descriptor, FIELD_NUMBER),
                               .type = get_number(descriptor, FIELD_TYPE),
                               .repeated = get_number(descriptor, FIELD_LABEL) == LABEL_REPEATED,
                               .in_oneof = get_field(descriptor, FIELD_ONEOF, &field)};
}

/* Removes "NAME" and the dot after it from the front of `path`. */
static bool strip_name(struct str *path, struct str name) {
    if (name.len == 0) {
        return true;
    }
    if (!path->ptr || !str_starts_with(*path, name)) {
        return false;
    }
    bool is_whole = path->len == name.len;
    if (!is_whole && path->ptr[name.len] != '.') {
        return false;
    }
    size_t n = is_whole ? name.len : name.len + 1;
    *path = str_make(path->ptr + n, path->len - n);
    return true;
}

/* Finds the message or enum "A.B" in a file or message, whose elements are in these fields. */
static struct str find_element(struct str in, struct str path, uint32_t messages, uint32_t enums) {
    struct pb_reader reader = pb_read(in);
    struct pb_field field;
    while (pb_next(&reader, &field)) {
        struct str rest = path;
        bool is_element = field.number == messages || field.number == enums;
        if (!is_element || !strip_name(&rest, get_text(field.bytes, NAME))) {
            continue;
        }
        if (rest.len == 0) {
            return field.bytes;
        }
        path = rest; /* names are unique */
        reader = pb_read(field.bytes);
        messages = MESSAGE_NESTED;
        enums = MESSAGE_ENUM;
    }
    return str_make(NULL, 0);
}

static struct str search_type(struct str descriptors, struct str name) {
    struct pb_reader reader = pb_read(descriptors);
    struct pb_field file;
    while (pb_next(&reader, &file)) {
        struct str path = name, found = {NULL, 0};
        if (file.number == SET_FILE && strip_name(&path, get_text(file.bytes, FILE_PACKAGE))) {
            found = find_element(file.bytes, path, FILE_MESSAGE, FILE_ENUM);
        }
        if (found.ptr) {
            return found;
        }
    }
    return str_make(NULL, 0);
}

/* Finds the descriptor of a message or enum. Returns: valid until the next call. */
static struct type *find_type(struct printer *printer, struct str name) {
    if (name.len > 0 && name.ptr[0] == '.') { /* as descriptors have it */
        name = str_make(name.ptr + 1, name.len - 1);
    }
    for (size_t i = 0; i < printer->n_cached; i++) {
        if (printer->types[i].name.ptr == name.ptr) {
            return &printer->types[i];
        }
    }
    printer->n_cached += printer->n_cached < CACHED_TYPES;
    struct type *type = &printer->types[printer->n_cached - 1];
    struct str found = search_type(printer->options->descriptors, name);
    *type = (struct type){.name = name,
                          .descriptor = found,
                          .is_map =
                              get_number(get_text(found, MESSAGE_OPTIONS), OPTIONS_MAP_ENTRY) != 0};
    return type;
}

/* Reads the fields of a message's descriptor, once. Returns: false when out of memory. */
static bool read_fields(struct printer *printer, struct type *type) {
    struct pb_reader reader = pb_read(type->descriptor);
    struct pb_field field;
    size_t n = 0;
    if (type->fields) {
        return true;
    }
    while (pb_next(&reader, &field)) {
        n += field.number == MESSAGE_FIELD;
    }
    struct field_spec *fields = arena_calloc(printer->json.out->arena, n + 1, sizeof(*fields));
    type->fields = type->fields_end = fields;
    reader = pb_read(type->descriptor);
    while (fields && pb_next(&reader, &field)) {
        if (field.number == MESSAGE_FIELD) {
            *fields++ = read_spec(field.bytes);
            type->fields_end = fields;
        }
    }
    return type->fields != NULL;
}

static enum status check_size(const struct printer *printer, struct error *err) {
    const struct buf *out = printer->json.out;
    if (out->failed) {
        return error_no_memory(err, "a document");
    }
    return out->len - printer->start <= printer->options->max_bytes
               ? ST_OK
               : error_set(err, ST_BODY_TOO_LARGE, "the document has more than %llu bytes as JSON",
                           (unsigned long long)printer->options->max_bytes);
}

/* ---- values ---------------------------------------------------------------------------------- */

static enum status field_error(const struct field_spec *spec, const char *what, struct error *err) {
    return error_set(err, ST_BAD_FIELD, "%.*s: %s", STR_ARG(spec->name), what);
}

static enum pb_type wire_type(uint64_t type) {
    switch (type) {
    case TYPE_DOUBLE:
    case TYPE_FIXED64:
    case TYPE_SFIXED64:
        return PB_FIXED64;
    case TYPE_FLOAT:
    case TYPE_FIXED32:
    case TYPE_SFIXED32:
        return PB_FIXED32;
    case TYPE_STRING:
    case TYPE_MESSAGE:
        return PB_BYTES;
    default:
        return PB_VARINT;
    }
}

/* With as few digits as the number needs as a float: 0.1, and 1 rather than 1.0. */
static void print_float(struct json_writer *json, uint32_t bits) {
    char text[FLOAT_PRINT_BYTES];
    float number;
    memcpy(&number, &bits, sizeof(number));
    struct str digits = str_make(text, float_print(text, isfinite(number) ? number : 0));
    size_t n =
        digits.len > 2 && memcmp(text + digits.len - 2, ".0", 2) == 0 ? digits.len - 2 : digits.len;
    json_write_raw(json, JSON_ELEMENT, str_make(text, n));
}

static void print_enum(struct printer *printer, const struct field_spec *spec, uint64_t value) {
    struct pb_reader reader = pb_read(find_type(printer, spec->type_name)->descriptor);
    struct pb_field field;
    while (pb_next(&reader, &field)) {
        if (field.number == ENUM_VALUE && get_number(field.bytes, VALUE_NUMBER) == value) {
            json_write_string(&printer->json, JSON_ELEMENT, get_text(field.bytes, NAME));
            return;
        }
    }
    json_write_i64(&printer->json, JSON_ELEMENT, (int32_t)value);
}

static void print_number(struct printer *printer, const struct field_spec *spec, uint64_t value) {
    struct json_writer *json = &printer->json;
    double number;
    switch (spec->type) {
    case TYPE_DOUBLE:
        memcpy(&number, &value, sizeof(number));
        json_write_f64(json, JSON_ELEMENT, number);
        break;
    case TYPE_FLOAT:
        print_float(json, (uint32_t)value);
        break;
    case TYPE_BOOL:
        json_write_bool(json, JSON_ELEMENT, value != 0);
        break;
    case TYPE_ENUM:
        print_enum(printer, spec, value);
        break;
    case TYPE_UINT64:
    case TYPE_FIXED64:
        json_write_u64(json, JSON_ELEMENT, value);
        break;
    case TYPE_UINT32:
    case TYPE_FIXED32:
        json_write_u64(json, JSON_ELEMENT, (uint32_t)value);
        break;
    case TYPE_INT32:
    case TYPE_SFIXED32:
        json_write_i64(json, JSON_ELEMENT, (int32_t)value);
        break;
    case TYPE_SINT32:
    case TYPE_SINT64: /* Encoding, "Signed Integers" */
        json_write_i64(json, JSON_ELEMENT, (int64_t)(value >> 1) ^ -(int64_t)(value & 1));
        break;
    default:
        json_write_i64(json, JSON_ELEMENT, (int64_t)value);
        break;
    }
}

/* Prints a value that is no message. */
static enum status print_scalar(struct printer *printer, const struct field_spec *spec,
                                const struct pb_field *field, struct error *err) {
    struct str text;
    if (field->type != wire_type(spec->type)) {
        return field_error(spec, "another type than expected", err);
    }
    if (spec->type != TYPE_STRING) {
        print_number(printer, spec, field->value);
        return ST_OK;
    }
    enum status status = pb_get_string(field, "text", &text, err);
    if (status == ST_OK) {
        json_write_string(&printer->json, JSON_ELEMENT, text);
    }
    return status;
}

/* Encoding, "Packed Repeated Fields". */
static enum status print_packed(struct printer *printer, const struct field_spec *spec,
                                struct str bytes, struct error *err) {
    enum pb_type type = wire_type(spec->type);
    struct pb_reader reader = pb_read(bytes);
    size_t n_fixed = type == PB_FIXED64 ? sizeof(uint64_t) : sizeof(uint32_t);
    while (reader.at < reader.end) {
        uint64_t value = 0;
        if (type == PB_VARINT) {
            (void)pb_next_varint(&reader, &value);
        } else if ((size_t)(reader.end - reader.at) < n_fixed) {
            reader.error_text = "a number of fixed size is cut off";
        } else {
            memcpy(&value, reader.at, n_fixed); /* little-endian, as Sluice's machines are */
            reader.at += n_fixed;
        }
        if (reader.error_text) {
            return field_error(spec, reader.error_text, err);
        }
        print_number(printer, spec, value);
        enum status status = check_size(printer, err);
        if (status != ST_OK) {
            return status;
        }
    }
    return ST_OK;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Opens a nested message, whose bracket begins the next value. */
static enum status push_message(struct printer *printer, const struct field_spec *spec,
                                struct str message, struct error *err) {
    struct type *type = find_type(printer, spec->type_name);
    if (printer->depth == MAX_DEPTH || !type->descriptor.ptr) {
        return field_error(spec, "the message is nested too deep, or unknown", err);
    }
    if (!read_fields(printer, type)) {
        return error_no_memory(err, "a document");
    }
    printer->stack[printer->depth++] = (struct frame){
        .message = message, .next_spec = type->fields, .end_of_spec = type->fields_end};
    json_write_open(&printer->json, JSON_ELEMENT, '{');
    return ST_OK;
}

static enum status print_value(struct printer *printer, const struct field_spec *spec,
                               const struct pb_field *field, struct error *err) {
    if (spec->type != TYPE_MESSAGE) {
        return print_scalar(printer, spec, field, err);
    }
    return field->type == PB_BYTES ? push_message(printer, spec, field->bytes, err)
                                   : field_error(spec, "another type than expected", err);
}

/* The key becomes a member's name, in quotes also where it is a number. */
static enum status print_entry(struct printer *printer, const struct frame *frame, struct str entry,
                               struct error *err) {
    struct pb_field key = {.type = wire_type(frame->key.type), .bytes = STR("")};
    struct pb_field value = {.type = wire_type(frame->value.type), .bytes = STR("")};
    struct str text;
    (void)get_field(entry, MAP_KEY, &key);
    (void)get_field(entry, MAP_VALUE, &value);
    if (key.type != wire_type(frame->key.type)) {
        return field_error(frame->spec, "a key of another type than expected", err);
    }
    if (frame->key.type == TYPE_STRING) {
        enum status status = pb_get_string(&key, "key", &text, err);
        if (status != ST_OK) {
            return status;
        }
    } else {
        text = arena_printf(printer->json.out->arena, "%llu", (unsigned long long)key.value);
    }
    json_write_key_str(&printer->json, text);
    return print_value(printer, &frame->value, &value, err);
}

static enum status print_item(struct printer *printer, struct frame *frame,
                              const struct pb_field *field, struct error *err) {
    const struct field_spec *spec = frame->spec;
    bool packed = field->type == PB_BYTES && wire_type(spec->type) != PB_BYTES;
    if (packed) {
        return print_packed(printer, spec, field->bytes, err);
    }
    if (!frame->is_map) {
        return print_value(printer, spec, field, err);
    }
    return field->type == PB_BYTES ? print_entry(printer, frame, field->bytes, err)
                                   : field_error(spec, "another type than expected", err);
}

/* Begins a list, or a map: a message type that is marked so. */
static enum status open_items(struct printer *printer, struct frame *frame, struct error *err) {
    struct type *type =
        frame->spec->type == TYPE_MESSAGE ? find_type(printer, frame->spec->type_name) : NULL;
    frame->is_map = type && type->is_map;
    if (frame->is_map) {
        if (!read_fields(printer, type)) {
            return error_no_memory(err, "a document");
        }
        for (const struct field_spec *spec = type->fields; spec < type->fields_end; spec++) {
            *(spec->number == MAP_KEY ? &frame->key : &frame->value) = *spec;
        }
    }
    json_write_key_str(&printer->json, frame->spec->name);
    json_write_open(&printer->json, JSON_ELEMENT, frame->is_map ? '{' : '[');
    frame->items = pb_read(frame->message);
    frame->in_items = true;
    return ST_OK;
}

/* Prints the next element of the current field, or ends it. */
static enum status step_items(struct printer *printer, struct frame *frame, struct error *err) {
    struct pb_field field;
    while (pb_next(&frame->items, &field)) {
        if (field.number == frame->spec->number) {
            return print_item(printer, frame, &field, err);
        }
    }
    json_write_close(&printer->json, frame->is_map ? '}' : ']');
    frame->in_items = false;
    return ST_OK;
}

/* Begins the field of frame->spec. */
static enum status begin_field(struct printer *printer, struct frame *frame, struct error *err) {
    const struct field_spec *spec = frame->spec;
    struct pb_reader reader = pb_read(frame->message);
    struct pb_field field, last = {.number = 0};
    while (pb_next(&reader, &field)) {
        if (field.number == spec->number) {
            last = field;
        }
    }
    bool present = last.number > 0;
    if (spec->repeated) {
        return present || printer->options->with_defaults ? open_items(printer, frame, err) : ST_OK;
    }
    if (!present &&
        (!printer->options->with_defaults || spec->in_oneof || spec->type == TYPE_MESSAGE)) {
        return ST_OK;
    }
    json_write_key_str(&printer->json, spec->name);
    if (present) {
        return print_value(printer, spec, &last, err);
    }
    if (spec->type == TYPE_STRING) {
        json_write_string(&printer->json, JSON_ELEMENT, STR(""));
    } else {
        print_number(printer, spec, 0);
    }
    return ST_OK;
}

static enum status step_message(struct printer *printer, struct frame *frame, struct error *err) {
    if (frame->in_items) {
        return step_items(printer, frame, err);
    }
    if (frame->next_spec < frame->end_of_spec) {
        frame->spec = frame->next_spec++;
        return begin_field(printer, frame, err);
    }
    json_write_close(&printer->json, '}');
    printer->depth--;
    return ST_OK;
}

enum status pb_json_print(struct buf *out, const struct pb_json_options *options,
                          struct str message, struct error *err) {
    struct printer printer = {.options = options, .json = {.out = out}, .start = out->len};
    const struct field_spec whole = {.name = str_of(options->type),
                                     .type_name = str_of(options->type)};
    enum status status = push_message(&printer, &whole, message, err);
    while (status == ST_OK && printer.depth > 0) {
        struct frame *frame = &printer.stack[printer.depth - 1];
        if (!frame->spec) { /* it was pushed just now */
            status = pb_check(frame->message, options->type, err);
        }
        if (status == ST_OK) {
            status = step_message(&printer, frame, err);
        }
        if (status == ST_OK) {
            status = check_size(&printer, err);
        }
    }
    return status;
}
