/* Descriptors are searched anew for each request: they are few, and requests are rare. */
#include "codec/grpc/reflection.h"

#include "codec/protobuf/pb.h"

/* ServerReflectionRequest and -Response. */
enum {
    HOST = 1,
    FILE_BY_FILENAME = 3,
    FILE_CONTAINING_SYMBOL = 4,
    FILE_CONTAINING_EXTENSION = 5,
    ALL_EXTENSIONS = 6,
    LIST_SERVICES = 7,
    VALID_HOST = 1,
    ORIGINAL_REQUEST = 2,
    FILE_ANSWER = 4,
    LIST_ANSWER = 6,
    ERROR_ANSWER = 7,
};

/* FileDescriptorSet, FileDescriptorProto, DescriptorProto and ServiceDescriptorProto. */
enum {
    SET_FILE = 1,
    FILE_NAME = 1,
    FILE_PACKAGE = 2,
    FILE_DEPENDENCY = 3,
    FILE_MESSAGE = 4,
    FILE_ENUM = 5,
    FILE_SERVICE = 6,
    NAME = 1,
    MESSAGE_NESTED = 3,
    MESSAGE_ENUM = 4,
    SERVICE_METHOD = 2,
    MAX_FILES = 64, /* files of one response */
    MAX_DEPTH = 8,  /* nesting of messages in our own descriptors */
};

/* Returns: the value of the first such field, a string or a message. */
static struct str get_field(struct str message, uint32_t number) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    while (pb_next(&reader, &field)) {
        if (field.number == number && field.type == PB_BYTES) {
            return field.bytes;
        }
    }
    return str_make(NULL, 0);
}

static struct str find_file_by_name(struct str descriptors, struct str name) {
    struct pb_reader reader = pb_read(descriptors);
    struct pb_field file;
    while (pb_next(&reader, &file)) {
        if (file.number == SET_FILE && str_eq(get_field(file.bytes, FILE_NAME), name)) {
            return file.bytes;
        }
    }
    return str_make(NULL, 0);
}

/* ---- symbols --------------------------------------------------------------------------------- */

/* Removes "NAME" or "NAME." from the front of `symbol`. */
static bool strip_name_prefix(struct str *symbol, struct str name) {
    if (!str_starts_with(*symbol, name)) {
        return false;
    }
    struct str rest = str_make(symbol->ptr + name.len, symbol->len - name.len);
    if (rest.len > 0 && rest.ptr[0] != '.') {
        return false;
    }
    *symbol = rest.len > 0 ? str_make(rest.ptr + 1, rest.len - 1) : rest;
    return true;
}

/* Is the symbol (or the rest of it) this element, or in it? Elements are services, messages and
 * enums; their members are in fields 2 (methods), 3 and 4 (messages, enums), 2 (fields). */
static bool element_contains_symbol(struct str element, uint32_t kind, struct str symbol) {
    struct str path[MAX_DEPTH];
    size_t depth = 0;
    path[depth++] = element;
    while (depth > 0) {
        struct str at = path[--depth];
        if (!strip_name_prefix(&symbol, get_field(at, NAME))) {
            continue;
        }
        if (symbol.len == 0) {
            return true;
        }
        struct pb_reader reader = pb_read(at);
        struct pb_field field;
        while (pb_next(&reader, &field)) {
            bool inside = kind == FILE_SERVICE
                              ? field.number == SERVICE_METHOD
                              : field.number == MESSAGE_NESTED || field.number == MESSAGE_ENUM;
            struct str rest = symbol;
            if (inside && field.type == PB_BYTES &&
                strip_name_prefix(&rest, get_field(field.bytes, NAME))) {
                path[depth++] = field.bytes;
                break; /* names are unique */
            }
        }
    }
    return false;
}

static bool file_contains_symbol(struct str file, struct str symbol) {
    struct str package = get_field(file, FILE_PACKAGE);
    if (package.len > 0 && !strip_name_prefix(&symbol, package)) {
        return false;
    }
    struct pb_reader reader = pb_read(file);
    struct pb_field field;
    while (pb_next(&reader, &field)) {
        bool element = field.number == FILE_MESSAGE || field.number == FILE_ENUM ||
                       field.number == FILE_SERVICE;
        if (element && element_contains_symbol(field.bytes, field.number, symbol)) {
            return true;
        }
    }
    return false;
}

static struct str find_file_with_symbol(struct str descriptors, struct str symbol) {
    struct pb_reader reader = pb_read(descriptors);
    struct pb_field file;
    while (pb_next(&reader, &file)) {
        if (file.number == SET_FILE && file_contains_symbol(file.bytes, symbol)) {
            return file.bytes;
        }
    }
    return str_make(NULL, 0);
}

/* ---- responses ------------------------------------------------------------------------------- */

static void add_error(struct buf *out, enum status st, struct str what) {
    size_t error = pb_begin(out, ERROR_ANSWER);
    pb_add_varint(out, 1, (uint64_t)status_grpc(st));
    size_t text = pb_begin(out, 2);
    buf_printf(out, "not found: %.*s", STR_ARG(what));
    pb_end(out, text);
    pb_end(out, error);
}

/* Adds the file and its dependencies, each once. */
static void add_file(struct buf *out, struct str descriptors, struct str file, struct str what) {
    struct str files[MAX_FILES];
    size_t n = 0;
    if (!file.ptr) {
        add_error(out, ST_NOT_FOUND, what);
        return;
    }
    size_t answer = pb_begin(out, FILE_ANSWER);
    files[n++] = file;
    for (size_t i = 0; i < n; i++) {
        pb_add_bytes(out, 1, files[i]);
        struct pb_reader reader = pb_read(files[i]);
        struct pb_field field;
        while (pb_next(&reader, &field)) {
            struct str needed = field.number == FILE_DEPENDENCY
                                    ? find_file_by_name(descriptors, field.bytes)
                                    : str_make(NULL, 0);
            bool known = !needed.ptr || n == MAX_FILES;
            for (size_t j = 0; !known && j < n; j++) {
                known = files[j].ptr == needed.ptr;
            }
            if (!known) {
                files[n++] = needed;
            }
        }
    }
    pb_end(out, answer);
}

static void add_services(struct buf *out, struct str descriptors) {
    size_t answer = pb_begin(out, LIST_ANSWER);
    struct pb_reader files = pb_read(descriptors);
    struct pb_field file, field;
    while (pb_next(&files, &file)) {
        struct str package = get_field(file.bytes, FILE_PACKAGE);
        struct pb_reader reader = pb_read(file.bytes);
        while (pb_next(&reader, &field)) {
            if (field.number == FILE_SERVICE) {
                size_t service = pb_begin(out, 1);
                size_t name = pb_begin(out, 1);
                buf_add_str(out, package);
                buf_add_char(out, '.');
                buf_add_str(out, get_field(field.bytes, NAME));
                pb_end(out, name);
                pb_end(out, service);
            }
        }
    }
    pb_end(out, answer);
}

static void encode_response(struct buf *out, struct str descriptors, uint32_t kind,
                            struct str what) {
    switch (kind) {
    case FILE_BY_FILENAME:
        add_file(out, descriptors, find_file_by_name(descriptors, what), what);
        break;
    case FILE_CONTAINING_SYMBOL:
        add_file(out, descriptors, find_file_with_symbol(descriptors, what), what);
        break;
    case LIST_SERVICES:
        add_services(out, descriptors);
        break;
    case ALL_EXTENSIONS: /* no message has extensions */
        add_error(out, ST_NOT_FOUND, what);
        break;
    case FILE_CONTAINING_EXTENSION:
        add_error(out, ST_NOT_FOUND, STR("an extension"));
        break;
    default:
        add_error(out, ST_BAD_REQUEST, STR("a request of this kind"));
        break;
    }
}

enum status grpc_reflection_respond(struct str descriptors, struct str request, struct buf *out,
                                    struct error *err) {
    struct pb_reader reader = pb_read(request);
    struct pb_field field;
    uint32_t kind = 0;
    struct str host = STR(""), what = STR("");
    enum status st = ST_OK;
    while (st == ST_OK && pb_next(&reader, &field)) {
        if (field.type != PB_BYTES) {
            continue;
        }
        if (field.number == HOST) {
            st = pb_get_string(&field, "host", &host, err);
        } else if (field.number >= FILE_BY_FILENAME && field.number <= LIST_SERVICES) {
            kind = field.number;
            st = kind == FILE_CONTAINING_EXTENSION /* a message; its content does not matter */
                     ? ST_OK
                     : pb_get_string(&field, "the request", &what, err);
        }
    }
    if (st != ST_OK) {
        return st;
    }
    if (reader.error_text) {
        return pb_reader_error(&reader, "ServerReflectionRequest", err);
    }
    pb_add_string(out, VALID_HOST, host);
    pb_add_bytes(out, ORIGINAL_REQUEST, request);
    encode_response(out, descriptors, kind, what);
    return out->failed ? error_no_memory(err, "the response") : ST_OK;
}
