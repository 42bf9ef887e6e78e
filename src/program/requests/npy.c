/* The .npy header is a Python dictionary in a fixed form: three keys, in any order, with a string,
 * a boolean and a tuple. This parser accepts that form only. */
#include "program/requests/npy.h"

#include <inttypes.h>
#include <string.h>

#include "core/base/num.h"

enum { PREFIX_BYTES = 8, ALIGNMENT = 64, MAX_HEADER = 65536 };

static const char magic[] = "\x93NUMPY";

static const struct {
    const char *descr;
    enum datatype datatype;
} kinds[] = {
    {"|b1", DT_BOOL},   {"|u1", DT_UINT8}, {"<u2", DT_UINT16}, {"<u4", DT_UINT32},
    {"<u8", DT_UINT64}, {"|i1", DT_INT8},  {"<i2", DT_INT16},  {"<i4", DT_INT32},
    {"<i8", DT_INT64},  {"<f2", DT_FP16},  {"<f4", DT_FP32},   {"<f8", DT_FP64},
};
enum { N_KINDS = sizeof(kinds) / sizeof(*kinds) };

/* The header being parsed. */
struct reader {
    struct str rest;
    const char *name;
    struct error *err;
    struct str descr;
    struct shape shape;
    unsigned seen; /* a bit for each key */
};

bool npy_has_magic(struct str bytes) {
    return bytes.len >= PREFIX_BYTES && memcmp(bytes.ptr, magic, 6) == 0;
}

static enum status npy_error(const struct reader *reader, const char *why) {
    return error_set(reader->err, ST_BAD_DATA, "%s is not a .npy file that can be read: %s",
                     reader->name, why);
}

static void skip_space(struct reader *reader) {
    while (reader->rest.ptr && reader->rest.len > 0 && strchr(" \n\t\r", reader->rest.ptr[0])) {
        reader->rest = str_make(reader->rest.ptr + 1, reader->rest.len - 1);
    }
}

/* Consumes `text` if it is next. */
static bool take_text(struct reader *reader, const char *text) {
    skip_space(reader);
    if (!str_starts_with(reader->rest, str_of(text))) {
        return false;
    }
    reader->rest = str_make(reader->rest.ptr + strlen(text), reader->rest.len - strlen(text));
    return true;
}

/* A Python string without escapes. */
static bool take_string(struct reader *reader, struct str *out) {
    const char *quote = take_text(reader, "'") ? "'" : take_text(reader, "\"") ? "\"" : NULL;
    if (!quote) {
        return false;
    }
    *out = str_cut(&reader->rest, *quote);
    return reader->rest.ptr != NULL && !memchr(out->ptr, '\\', out->len);
}

static bool take_dim(struct reader *reader, int64_t *out) {
    size_t n = 0;
    uint64_t value;
    skip_space(reader);
    while (n < reader->rest.len && reader->rest.ptr[n] >= '0' && reader->rest.ptr[n] <= '9') {
        n++;
    }
    if (!num_parse_u64(str_make(reader->rest.ptr, n), &value) || value > INT64_MAX) {
        return false;
    }
    *out = (int64_t)value;
    reader->rest = str_make(reader->rest.ptr + n, reader->rest.len - n);
    return true;
}

/* "()", "(3,)", "(3, 4)" */
static enum status read_shape(struct arena *arena, struct reader *reader) {
    int64_t *dims = arena_calloc(arena, SHAPE_MAX_RANK, sizeof(*dims));
    size_t rank = 0;
    if (!take_text(reader, "(")) {
        return npy_error(reader, "its shape is not a tuple");
    }
    while (!take_text(reader, ")")) {
        if (rank == SHAPE_MAX_RANK) {
            return npy_error(reader, "it has over 64 dimensions");
        }
        if (!take_dim(reader, &dims[rank++])) {
            return npy_error(reader, "its shape holds something else than whole numbers");
        }
        if (!take_text(reader, ",")) {
            if (!take_text(reader, ")")) {
                return npy_error(reader, "the tuple of its shape does not end");
            }
            break;
        }
    }
    reader->shape = (struct shape){dims, rank};
    return ST_OK;
}

static enum status read_value(struct arena *arena, struct reader *reader, struct str key) {
    if (str_is(key, "descr")) {
        reader->seen |= 1;
        if (!take_string(reader, &reader->descr)) {
            return npy_error(reader, "its elements are records, not numbers");
        }
        return ST_OK;
    }
    if (str_is(key, "fortran_order")) {
        reader->seen |= 2;
        if (take_text(reader, "True")) {
            return npy_error(reader, "it is in Fortran order; save numpy.ascontiguousarray(a)");
        }
        return take_text(reader, "False") ? ST_OK
                                          : npy_error(reader, "fortran_order is not True or False");
    }
    if (str_is(key, "shape")) {
        reader->seen |= 4;
        return read_shape(arena, reader);
    }
    return npy_error(reader, "its header has a key that is not descr, fortran_order or shape");
}

static enum status read_header(struct arena *arena, struct reader *reader) {
    if (!take_text(reader, "{")) {
        return npy_error(reader, "its header is not a dictionary");
    }
    while (!take_text(reader, "}")) {
        struct str key;
        if (!take_string(reader, &key) || !take_text(reader, ":")) {
            return npy_error(reader, "its header is malformed");
        }
        enum status status = read_value(arena, reader, key);
        if (status != ST_OK) {
            return status;
        }
        if (!take_text(reader, ",") && (reader->rest.len == 0 || reader->rest.ptr[0] != '}')) {
            return npy_error(reader, "its header is malformed");
        }
    }
    skip_space(reader);
    if (reader->rest.len > 0 || reader->seen != 7) {
        return npy_error(reader, "its header is malformed");
    }
    return ST_OK;
}

static enum status find_datatype(const struct reader *reader, enum datatype *out) {
    struct str descr = reader->descr;
    for (size_t i = 0; i < N_KINDS; i++) {
        bool same = str_is(descr, kinds[i].descr);
        if (!same && descr.len == 3 && (descr.ptr[0] == '=' || descr.ptr[2] == '1')) {
            same = memcmp(descr.ptr + 1, kinds[i].descr + 1, 2) == 0;
        }
        if (same) {
            *out = kinds[i].datatype;
            return ST_OK;
        }
    }
    if (descr.len > 0 && descr.ptr[0] == '>') {
        return npy_error(reader, "it is big-endian; save a.astype(a.dtype.newbyteorder('<'))");
    }
    return error_set(reader->err, ST_BAD_DATATYPE,
                     "%s: NumPy's type %.*s is not a tensor datatype; expected booleans, integers "
                     "or floats (send text as JSON)",
                     reader->name, STR_ARG(descr));
}

/* Splits the file into header and data. */
static enum status split_file(struct reader *reader, struct str bytes, struct str *data) {
    const unsigned char *p = (const unsigned char *)bytes.ptr;
    if (!npy_has_magic(bytes)) {
        return npy_error(reader, "it does not begin with \\x93NUMPY");
    }
    unsigned major = p[6];
    size_t n_size = major == 1 ? 2 : 4;
    if (major < 1 || major > 3 || bytes.len < PREFIX_BYTES + n_size) {
        return npy_error(reader, "its version is not 1, 2 or 3");
    }
    size_t n = (size_t)p[8] | (size_t)p[9] << 8;
    if (n_size == 4) {
        n |= (size_t)p[10] << 16 | (size_t)p[11] << 24;
    }
    size_t at = PREFIX_BYTES + n_size;
    if (n > MAX_HEADER || n > bytes.len - at) {
        return npy_error(reader, "its header does not end");
    }
    reader->rest = str_make(bytes.ptr + at, n);
    *data = str_make(bytes.ptr + at + n, bytes.len - at - n);
    return ST_OK;
}

enum status npy_decode(struct arena *arena, struct str bytes, const char *name, struct npy *out,
                       struct error *err) {
    struct reader reader = {.name = name, .err = err};
    uint64_t expected = 0;
    *out = (struct npy){0};
    if (split_file(&reader, bytes, &out->data) != ST_OK || read_header(arena, &reader) != ST_OK ||
        find_datatype(&reader, &out->datatype) != ST_OK) {
        return err->status;
    }
    out->shape = reader.shape;
    if (!shape_bytes(out->shape, out->datatype, &expected) || expected != out->data.len) {
        char text[SHAPE_TEXT_BYTES];
        return error_set(
            err, ST_BAD_DATA, "%s: shape %s of %s takes %" PRIu64 " bytes, and %zu are there", name,
            shape_print(out->shape, text), datatype_name(out->datatype), expected, out->data.len);
    }
    return ST_OK;
}

enum status npy_encode_head(struct buf *out, enum datatype datatype, struct shape shape,
                            struct error *err) {
    const char *descr = NULL;
    for (size_t i = 0; i < N_KINDS; i++) {
        descr = kinds[i].datatype == datatype ? kinds[i].descr : descr;
    }
    if (!descr) {
        return error_set(err, ST_BAD_DATATYPE, "NumPy has no %s; use --format json or --format raw",
                         datatype_name(datatype));
    }
    size_t start = out->len;
    buf_add(out, magic, 6);
    buf_add(out, "\1\0\0\0", 4); /* the version; the length is set below */
    buf_printf(out, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (size_t i = 0; i < shape.rank; i++) {
        buf_printf(out, i + 1 < shape.rank ? "%" PRId64 ", " : "%" PRId64, shape.dims[i]);
    }
    buf_add_str(out, shape.rank == 1 ? STR(",), }") : STR("), }"));
    while ((out->len - start + 1) % ALIGNMENT != 0) {
        buf_add_char(out, ' ');
    }
    buf_add_char(out, '\n');
    size_t n = out->len - start - PREFIX_BYTES - 2;
    out->data[start + 8] = (char)(n & 0xff);
    out->data[start + 9] = (char)(n >> 8);
    return ST_OK;
}
