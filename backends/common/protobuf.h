/* Reads and writes the fields of a protobuf message in memory. What is malformed, or what protobuf
 * and a walk of fields could read differently, is an error. */
#ifndef SLUICE_COMMON_PROTOBUF_H
#define SLUICE_COMMON_PROTOBUF_H

#include <stddef.h>
#include <stdint.h>

/* A view of a message, or of what remains of it. */
struct bytes {
    const char *data;
    size_t n;
};

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

struct field {
    uint32_t number;
    unsigned wire_type;
    uint64_t value;     /* WIRE_VARINT */
    struct bytes bytes; /* the others: their content */
    struct bytes whole; /* with its tag */
};

/* Takes the next field from the front of `rest`. An error is: an end within a field; a tag of more
 * than 32 bits, a length of more than 31, another number of more than 64; field 0; a wire type that
 * is none, and groups (3 and 4), which no file format that we read has.
 * Returns: 1: *field is set; 0: `rest` is empty; -1: *why says what is malformed, as a noun
 * phrase. */
int field_take(struct bytes *rest, struct field *field, const char **why);

/* Takes a number of a packed field. Returns: 0 when `rest` does not begin with one. */
int varint_take(struct bytes *rest, uint64_t *value);

/* Returns: whether the bytes are those of `text`. */
int bytes_equal(struct bytes bytes, const char *text);

/* Returns: whether the bytes are decimal digits, at most UINT64_MAX; *value is that number. */
int bytes_number(struct bytes bytes, uint64_t *value);

/* ---- writing --------------------------------------------------------------------------------- */

/* A message that is written, at most INT_MAX bytes, which is protobuf's limit. After a failure
 * nothing is added. Zeroed it is empty; `data` is the owner's to free. */
struct writer {
    char *data;
    size_t n, cap;
    int no_memory, too_large;
};

/* Makes room for `n` more bytes at once, where that many may be added. */
void writer_reserve(struct writer *writer, size_t n);
void writer_add(struct writer *writer, const void *data, size_t n);
void writer_add_number(struct writer *writer, uint32_t number, uint64_t value);
/* The tag and the length of a field whose `n` bytes are added next. */
void writer_add_head(struct writer *writer, uint32_t number, size_t n);
void writer_add_bytes(struct writer *writer, uint32_t number, struct bytes bytes);
/* Adds a message as a field, or its failure, and frees it. */
void writer_add_message(struct writer *writer, uint32_t number, struct writer *message);

#endif
