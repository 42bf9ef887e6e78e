/* What several messages have in common: paths, strings, shapes. */
#include "codec/kserve/grpc/fields.h"

#include <inttypes.h>
#include <stdio.h>

#include "core/base/utf8.h"

const char *v2_grpc_path_print(struct v2_grpc_path_prefix prefix, const char *field,
                               char out[V2_GRPC_PATH_BYTES]) {
    if (prefix.list) {
        snprintf(out, V2_GRPC_PATH_BYTES, "%s[%zu].%s", prefix.list, prefix.index, field);
    } else {
        snprintf(out, V2_GRPC_PATH_BYTES, "%s", field);
    }
    return out;
}

enum status v2_grpc_get_string(const struct pb_field *field, struct v2_grpc_path_prefix prefix,
                               const char *name, struct str *out, struct error *err) {
    if (field->type == PB_BYTES && utf8_is_valid(field->bytes.ptr, field->bytes.len)) {
        *out = field->bytes;
        return ST_OK;
    }
    char path[V2_GRPC_PATH_BYTES];
    return pb_get_string(field, v2_grpc_path_print(prefix, name, path), out, err);
}

enum status v2_grpc_get_message(const struct pb_field *field, struct v2_grpc_path_prefix prefix,
                                const char *name, struct str *out, struct error *err) {
    if (field->type != PB_BYTES) {
        char path[V2_GRPC_PATH_BYTES];
        return error_set(err, ST_BAD_FIELD, "%s: expected a message, got a number",
                         v2_grpc_path_print(prefix, name, path));
    }
    *out = field->bytes;
    return ST_OK;
}

enum status v2_grpc_get_map_entry(const struct pb_field *field, const char *name, struct str *key,
                                  struct str *value, struct error *err) {
    enum { KEY = 1, VALUE = 2 };
    struct pb_reader reader = pb_read(field->bytes);
    struct pb_field part;
    enum status st = ST_OK;
    *key = *value = STR("");
    if (field->type != PB_BYTES) {
        return error_set(err, ST_BAD_FIELD, "%s: a field of the wrong type", name);
    }
    while (st == ST_OK && pb_next(&reader, &part)) {
        if (part.number == KEY) {
            st = pb_get_string(&part, name, key, err);
        } else if (part.number == VALUE && part.type == PB_BYTES) {
            *value = part.bytes;
        }
    }
    return st == ST_OK && reader.error_text ? pb_reader_error(&reader, name, err) : st;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

struct dims {
    int64_t *items;
    size_t n;
    int64_t least;
    struct v2_grpc_path_prefix prefix;
};

static enum status add_dim(struct dims *dims, uint64_t value, struct error *err) {
    char path[V2_GRPC_PATH_BYTES];
    if (dims->n == SHAPE_MAX_RANK) {
        return error_set(err, ST_BAD_SHAPE, "%s: expected at most %d dimensions, got more",
                         v2_grpc_path_print(dims->prefix, "shape", path), SHAPE_MAX_RANK);
    }
    if ((int64_t)value < dims->least) {
        return error_set(err, ST_BAD_SHAPE, "%s[%zu]: expected a number from %d on, got %" PRId64,
                         v2_grpc_path_print(dims->prefix, "shape", path), dims->n, (int)dims->least,
                         (int64_t)value);
    }
    dims->items[dims->n++] = (int64_t)value;
    return ST_OK;
}

static enum status add_packed(struct dims *dims, struct str list, struct error *err) {
    struct pb_reader reader = pb_read(list);
    uint64_t value;
    enum status st = ST_OK;
    while (st == ST_OK && pb_next_varint(&reader, &value)) {
        st = add_dim(dims, value, err);
    }
    return st == ST_OK && reader.error_text ? pb_reader_error(&reader, "list of int64", err) : st;
}

static enum status read_dims(struct str message, uint32_t number, struct dims *dims,
                             struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    enum status st = ST_OK;
    while (st == ST_OK && pb_next(&reader, &field)) {
        if (field.number != number) {
            continue;
        }
        char path[V2_GRPC_PATH_BYTES];
        if (field.type == PB_BYTES) {
            st = add_packed(dims, field.bytes, err);
        } else if (field.type == PB_VARINT) {
            st = add_dim(dims, field.value, err);
        } else {
            st = error_set(err, ST_BAD_FIELD, "%s: expected int64, got another type",
                           v2_grpc_path_print(dims->prefix, "shape", path));
        }
    }
    return st;
}

enum status v2_grpc_shape_read(struct arena *arena, struct str message, uint32_t number,
                               struct v2_grpc_path_prefix prefix, int64_t least, struct shape *out,
                               struct error *err) {
    int64_t found[SHAPE_MAX_RANK];
    struct dims dims = {.items = found, .least = least, .prefix = prefix};
    enum status st = read_dims(message, number, &dims, err);
    if (st != ST_OK) {
        return st;
    }
    int64_t *copy = arena_alloc(arena, dims.n * sizeof *copy);
    if (!copy) {
        return error_set(err, ST_NO_MEMORY, "no memory for a shape");
    }
    memcpy(copy, found, dims.n * sizeof *copy);
    *out = (struct shape){copy, dims.n};
    return ST_OK;
}
