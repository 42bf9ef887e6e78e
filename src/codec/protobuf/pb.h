/* Protocol buffers without a schema: a reader of fields, whose strings and bytes are views of the
 * message, and a writer. Callers know the field numbers. Nothing recurses: a nested message has a
 * reader of its own, and groups (which are deprecated) are skipped with a counter.
 *
 * Protocol buffers, "Encoding". */
#ifndef SLUICE_CODEC_PROTOBUF_PB_H
#define SLUICE_CODEC_PROTOBUF_PB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/base/str.h"

enum pb_type { PB_VARINT = 0, PB_FIXED64 = 1, PB_BYTES = 2, PB_FIXED32 = 5 };

enum {
    PB_MAX_GROUPS = 100, /* nested, while they are skipped */
    PB_MAX_VARINT_BYTES = 10,
};

struct pb_field {
    uint32_t number;
    enum pb_type type;
    uint64_t value;   /* PB_VARINT, PB_FIXED64, PB_FIXED32 */
    struct str bytes; /* PB_BYTES: a view; a string, a nested message, a packed list */
};

struct pb_reader {
    const char *at, *end;
    const char *error_text; /* why the bytes are malformed; NULL: no error so far */
};

static inline struct pb_reader pb_read(struct str message) {
    const char *end = message.len > 0 ? message.ptr + message.len : message.ptr; /* may be NULL */
    return (struct pb_reader){message.ptr, end, NULL};
}

/* Splits a tag into the field's number and its type's bits, which may be none of enum pb_type.
 * Returns: false where the number is out of range. For readers of chunks, too. */
bool pb_split_tag(uint64_t tag, uint32_t *number, unsigned *type);

/* The next field, of any kind. */
bool pb_next_any(struct pb_reader *reader, struct pb_field *field);

/* The next field, in the order of the bytes; groups are skipped. Returns: false at the end, and
 * where the bytes are malformed: then `error_text` is set. (Most fields are decoded here: bytes
 * whose tag and length have one byte each.) */
static inline bool pb_next(struct pb_reader *reader, struct pb_field *field) {
    size_t left = (size_t)(reader->end - reader->at);
    if (left >= 2) {
        unsigned char tag = (unsigned char)reader->at[0], n_bytes = (unsigned char)reader->at[1];
        bool is_bytes = (tag & 0x87) == PB_BYTES && tag > PB_BYTES;
        if (is_bytes && n_bytes < 0x80 && n_bytes <= left - 2) {
            field->number = tag >> 3;
            field->type = PB_BYTES;
            field->value = 0;
            field->bytes = str_make(reader->at + 2, n_bytes);
            reader->at += 2 + n_bytes;
            return true;
        }
    }
    return left > 0 && pb_next_any(reader, field);
}
/* The next number of a packed list of varints. Returns: as pb_next. */
bool pb_next_varint(struct pb_reader *reader, uint64_t *value);
/* Checks that the fields of this level are well formed. Returns: ST_BAD_REQUEST with the reason;
 * `what` ("ModelInferRequest") is the message's name in it. */
enum status pb_check(struct str message, const char *what, struct error *err) SLUICE_MUST_USE;
/* The error of a reader whose error_text is set. Returns: ST_BAD_REQUEST. */
enum status pb_reader_error(const struct pb_reader *reader, const char *what, struct error *err);
/* Gets a string field. Returns: ST_BAD_FIELD where it has another type or is not UTF-8; `path` is
 * its name in the error. */
enum status pb_get_string(const struct pb_field *field, const char *path, struct str *out,
                          struct error *err) SLUICE_MUST_USE;

/* ---- writing --------------------------------------------------------------------------------- */

/* Fields are appended also with the default value: a caller that leaves default values out, as
 * proto3 does, checks the value. */
void pb_add_varint(struct buf *out, uint32_t number, uint64_t value);
/* Left out when 0, the default of proto3. */
static inline void pb_add_number(struct buf *out, uint32_t number, uint64_t value) {
    if (value != 0) {
        pb_add_varint(out, number, value);
    }
}
void pb_add_fixed64(struct buf *out, uint32_t number, uint64_t value);
void pb_add_fixed32(struct buf *out, uint32_t number, uint32_t value);
void pb_add_double(struct buf *out, uint32_t number, double value);
void pb_add_bytes(struct buf *out, uint32_t number, struct str bytes);
/* The same unless it is empty. */
void pb_add_string(struct buf *out, uint32_t number, struct str text);
/* Appends the head of a field of bytes; the caller appends the `n_bytes`. */
void pb_add_head(struct buf *out, uint32_t number, uint64_t n_bytes);
/* Returns: the size of what pb_add_head appends. */
size_t pb_head_bytes(uint32_t number, uint64_t n_bytes);

/* Begins a nested message: what is appended until pb_end is its content. Returns: the position for
 * pb_end. */
size_t pb_begin(struct buf *out, uint32_t number);
/* Ends it: inserts its length. */
void pb_end(struct buf *out, size_t start);
/* As pb_end, where another `n_elsewhere` bytes of the content are not in `out` but are sent from
 * other memory, at the offset *cut of `out`, after `start`; *cut moves with the content. */
void pb_end_scattered(struct buf *out, size_t start, size_t *cut, uint64_t n_elsewhere);
/* A packed list of int64 (no field when it is empty). */
void pb_add_packed_i64(struct buf *out, uint32_t number, const int64_t *values, size_t n);

#endif
