/* Protocol buffers without a schema. Every length is compared with the remaining bytes before it is
 * used. */
#include "codec/protobuf/pb.h"

#include "core/base/utf8.h"

enum { TYPE_BITS = 3, GROUP_START = 3, GROUP_END = 4, MAX_NUMBER = 536870911, LAST_BYTE = 9 };

static bool reader_fail(struct pb_reader *reader, const char *why) {
    reader->error_text = why;
    reader->at = reader->end;
    return false;
}

/* Encoding, "Base 128 Varints": at most ten bytes, the tenth with one bit. */
static bool read_varint(struct pb_reader *reader, uint64_t *out) {
    uint64_t value = 0;
    for (unsigned i = 0; i < PB_MAX_VARINT_BYTES; i++) {
        if (reader->at == reader->end) {
            return reader_fail(reader, "a number is cut off");
        }
        unsigned char byte = (unsigned char)*reader->at++;
        if (i == LAST_BYTE && byte > 1) {
            break;
        }
        value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte < 0x80) {
            *out = value;
            return true;
        }
    }
    return reader_fail(reader, "a number has more than 64 bits");
}

bool pb_next_varint(struct pb_reader *reader, uint64_t *value) {
    return reader->at < reader->end && read_varint(reader, value);
}

static bool read_fixed(struct pb_reader *reader, size_t n_bytes, uint64_t *out) {
    if ((size_t)(reader->end - reader->at) < n_bytes) {
        return reader_fail(reader, "a number of fixed size is cut off");
    }
    uint64_t value = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        value |= (uint64_t)(unsigned char)reader->at[i] << (8 * i);
    }
    reader->at += n_bytes;
    *out = value;
    return true;
}

static bool read_bytes(struct pb_reader *reader, struct str *out) {
    uint64_t n_bytes;
    if (!read_varint(reader, &n_bytes)) {
        return false;
    }
    if (n_bytes > (uint64_t)(reader->end - reader->at)) {
        return reader_fail(reader, "a field runs past the end of its message");
    }
    *out = str_make(reader->at, (size_t)n_bytes);
    reader->at += n_bytes;
    return true;
}

bool pb_split_tag(uint64_t tag, uint32_t *number, unsigned *type) {
    *type = (unsigned)(tag & ((1U << TYPE_BITS) - 1));
    tag >>= TYPE_BITS;
    *number = (uint32_t)tag;
    return tag > 0 && tag <= MAX_NUMBER;
}

static bool read_tag(struct pb_reader *reader, uint32_t *number, unsigned *type) {
    uint64_t tag;
    if (!read_varint(reader, &tag)) {
        return false;
    }
    return pb_split_tag(tag, number, type) ||
           reader_fail(reader, "a field's number is out of range");
}

static bool read_value(struct pb_reader *reader, unsigned type, struct pb_field *field) {
    field->type = (enum pb_type)type;
    field->value = 0;
    field->bytes = str_make(NULL, 0);
    switch (type) {
    case PB_VARINT:
        return read_varint(reader, &field->value);
    case PB_FIXED64:
        return read_fixed(reader, sizeof(uint64_t), &field->value);
    case PB_FIXED32:
        return read_fixed(reader, sizeof(uint32_t), &field->value);
    case PB_BYTES:
        return read_bytes(reader, &field->bytes);
    default:
        return reader_fail(reader, "a field has a type that does not exist");
    }
}

/* Skips a group after its start tag. */
static bool skip_group(struct pb_reader *reader, uint32_t number) {
    uint32_t open[PB_MAX_GROUPS];
    size_t depth = 0;
    open[depth++] = number;
    while (depth > 0) {
        unsigned type;
        struct pb_field field;
        if (reader->at == reader->end) {
            return reader_fail(reader, "a group does not end");
        }
        if (!read_tag(reader, &number, &type)) {
            return false;
        }
        if (type == GROUP_START) {
            if (depth == PB_MAX_GROUPS) {
                return reader_fail(reader, "groups are nested too deep");
            }
            open[depth++] = number;
        } else if (type == GROUP_END) {
            if (open[--depth] != number) {
                return reader_fail(reader, "a group ends that did not begin");
            }
        } else if (!read_value(reader, type, &field)) {
            return false;
        }
    }
    return true;
}

/* A field of bytes whose tag has one byte and whose length has two. */
static bool next_bytes_of_two_byte_length(struct pb_reader *reader, struct pb_field *field) {
    const unsigned char *at = (const unsigned char *)reader->at;
    size_t left = (size_t)(reader->end - reader->at);
    bool fits = left >= 3 && (at[0] & 0x87) == PB_BYTES && at[0] > PB_BYTES && at[1] >= 0x80 &&
                at[2] < 0x80;
    size_t n_bytes = fits ? (at[1] & 0x7fU) | (size_t)at[2] << 7 : 0;
    if (!fits || n_bytes > left - 3) {
        return false;
    }
    *field = (struct pb_field){at[0] >> TYPE_BITS, PB_BYTES, 0, str_make(reader->at + 3, n_bytes)};
    reader->at += 3 + n_bytes;
    return true;
}

static bool next_generic(struct pb_reader *reader, struct pb_field *field) {
    while (reader->at < reader->end) {
        unsigned type;
        if (!read_tag(reader, &field->number, &type)) {
            return false;
        }
        if (type != GROUP_START) {
            return read_value(reader, type, field);
        }
        if (!skip_group(reader, field->number)) {
            return false;
        }
    }
    return false;
}

bool pb_next_any(struct pb_reader *reader, struct pb_field *field) {
    return next_bytes_of_two_byte_length(reader, field) || next_generic(reader, field);
}

enum status pb_reader_error(const struct pb_reader *reader, const char *what, struct error *err) {
    return error_set(err, ST_BAD_REQUEST, "this is not a %s: %s", what, reader->error_text);
}

enum status pb_check(struct str message, const char *what, struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    while (pb_next(&reader, &field)) {
    }
    return reader.error_text ? pb_reader_error(&reader, what, err) : ST_OK;
}

enum status pb_get_string(const struct pb_field *field, const char *path, struct str *out,
                          struct error *err) {
    if (field->type != PB_BYTES) {
        return error_set(err, ST_BAD_FIELD, "%s: expected a string, got a number", path);
    }
    if (!utf8_is_valid(field->bytes.ptr, field->bytes.len)) {
        return error_set(err, ST_BAD_FIELD, "%s: expected UTF-8, but its byte %zu is not", path,
                         utf8_valid_prefix(field->bytes.ptr, field->bytes.len));
    }
    *out = field->bytes;
    return ST_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

enum { MAX_HEAD_BYTES = 2 * PB_MAX_VARINT_BYTES }; /* a tag, and a number or a length */

static size_t put_varint(char *out, uint64_t value) {
    size_t n = 0;
    while (value >= 0x80) {
        out[n++] = (char)(value | 0x80);
        value >>= 7;
    }
    out[n++] = (char)value;
    return n;
}

static size_t put_tag(char *out, uint32_t number, enum pb_type type) {
    return put_varint(out, (uint64_t)number << TYPE_BITS | (unsigned)type);
}

static size_t put_head(char *out, uint32_t number, enum pb_type type, uint64_t value) {
    size_t n = put_tag(out, number, type);
    return n + put_varint(out + n, value);
}

static void add_tag(struct buf *out, uint32_t number, enum pb_type type) {
    char *to = buf_reserve(out, PB_MAX_VARINT_BYTES);
    if (to) {
        buf_advance(out, put_tag(to, number, type));
    }
}

static void add_head(struct buf *out, uint32_t number, enum pb_type type, uint64_t value) {
    char *to = buf_reserve(out, MAX_HEAD_BYTES);
    if (to) {
        buf_advance(out, put_head(to, number, type, value));
    }
}

static void add_fixed(struct buf *out, uint64_t value, size_t n_bytes) {
    char bytes[sizeof(uint64_t)];
    for (size_t i = 0; i < n_bytes; i++) {
        bytes[i] = (char)(value >> (8 * i));
    }
    buf_add(out, bytes, n_bytes);
}

void pb_add_varint(struct buf *out, uint32_t number, uint64_t value) {
    add_head(out, number, PB_VARINT, value);
}

void pb_add_fixed64(struct buf *out, uint32_t number, uint64_t value) {
    add_tag(out, number, PB_FIXED64);
    add_fixed(out, value, sizeof(uint64_t));
}

void pb_add_fixed32(struct buf *out, uint32_t number, uint32_t value) {
    add_tag(out, number, PB_FIXED32);
    add_fixed(out, value, sizeof(uint32_t));
}

void pb_add_double(struct buf *out, uint32_t number, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    pb_add_fixed64(out, number, bits);
}

void pb_add_head(struct buf *out, uint32_t number, uint64_t n_bytes) {
    add_head(out, number, PB_BYTES, n_bytes);
}

size_t pb_head_bytes(uint32_t number, uint64_t n_bytes) {
    char head[MAX_HEAD_BYTES];
    return put_head(head, number, PB_BYTES, n_bytes);
}

void pb_add_bytes(struct buf *out, uint32_t number, struct str bytes) {
    pb_add_head(out, number, bytes.len);
    buf_add(out, bytes.ptr, bytes.len);
}

void pb_add_string(struct buf *out, uint32_t number, struct str text) {
    if (text.len > 0) {
        pb_add_bytes(out, number, text);
    }
}

/* The length is known at the end: one byte is reserved for it, which is enough for most messages;
 * otherwise the content is moved. */
size_t pb_begin(struct buf *out, uint32_t number) {
    add_head(out, number, PB_BYTES, 0);
    return out->len;
}

void pb_end_scattered(struct buf *out, size_t start, size_t *cut, uint64_t n_elsewhere) {
    if (out->failed) {
        return;
    }
    size_t n_bytes = out->len - start;
    char length[PB_MAX_VARINT_BYTES];
    size_t more = put_varint(length, n_bytes + n_elsewhere) - 1;
    if (more > 0) {
        if (!buf_reserve(out, more)) {
            return;
        }
        memmove(out->data + start + more, out->data + start, n_bytes);
        buf_advance(out, more);
        *cut += more;
    }
    memcpy(out->data + start - 1, length, more + 1);
}

void pb_end(struct buf *out, size_t start) {
    size_t cut = 0;
    pb_end_scattered(out, start, &cut, 0);
}

void pb_add_packed_i64(struct buf *out, uint32_t number, const int64_t *values, size_t n) {
    if (n == 0) {
        return;
    }
    size_t start = pb_begin(out, number);
    for (size_t i = 0; i < n; i++) {
        char *to = buf_reserve(out, PB_MAX_VARINT_BYTES);
        if (to) {
            buf_advance(out, put_varint(to, (uint64_t)values[i]));
        }
    }
    pb_end(out, start);
}
