/* The wire format of protobuf: https://protobuf.dev/programming-guides/encoding. */
#include "common/protobuf.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { WIRE_GROUP = 3, WIRE_GROUP_END = 4, MAX_TAG_BYTES = 5, MAX_VARINT_BYTES = 10 };

/* protobuf drops bits that do not fit into the number, so that such a tag would be another one. */
static int varint_take_up_to(struct bytes *rest, int max_bytes, uint64_t *value) {
    *value = 0;
    for (int i = 0; i < max_bytes && rest->n > 0; i++) {
        unsigned char byte = (unsigned char)*rest->data++;
        rest->n--;
        if (i == MAX_VARINT_BYTES - 1 && byte > 1) {
            return 0;
        }
        *value |= (uint64_t)(byte & 0x7fU) << (7 * i);
        if (byte < 0x80) {
            return 1;
        }
    }
    return 0;
}

int varint_take(struct bytes *rest, uint64_t *value) {
    return varint_take_up_to(rest, MAX_VARINT_BYTES, value);
}

static const char *tag_take(struct bytes *rest, struct field *field) {
    uint64_t tag;
    if (!varint_take_up_to(rest, MAX_TAG_BYTES, &tag) || tag > UINT32_MAX) {
        return "a damaged tag of a field";
    }
    *field = (struct field){.number = (uint32_t)(tag >> 3), .wire_type = (unsigned)(tag & 7)};
    return field->number == 0 ? "a field of number 0" : NULL;
}

static const char *length_take(struct bytes *rest, size_t *n) {
    uint64_t length;
    if (!varint_take_up_to(rest, MAX_TAG_BYTES, &length) || length > INT_MAX) {
        return "a damaged length of a field";
    }
    *n = (size_t)length;
    return NULL;
}

static const char *content_take(struct bytes *rest, struct field *field) {
    size_t n = 0;
    const char *why = NULL;
    switch (field->wire_type) {
    case WIRE_VARINT:
        return varint_take(rest, &field->value) ? NULL : "a damaged number";
    case WIRE_FIXED64:
        n = 8;
        break;
    case WIRE_FIXED32:
        n = 4;
        break;
    case WIRE_BYTES:
        why = length_take(rest, &n);
        break;
    case WIRE_GROUP:
    case WIRE_GROUP_END:
        return "a group (wire type 3 or 4), which is not read";
    default:
        return "a field of an unknown wire type";
    }
    if (!why && n > rest->n) {
        why = "a field that is longer than the message that contains it";
    }
    if (!why) {
        field->bytes = (struct bytes){rest->data, n};
        rest->data += n;
        rest->n -= n;
    }
    return why;
}

int field_take(struct bytes *rest, struct field *field, const char **why) {
    struct bytes from = *rest;
    if (rest->n == 0) {
        return 0;
    }
    *why = tag_take(rest, field);
    if (!*why) {
        *why = content_take(rest, field);
    }
    field->whole = (struct bytes){from.data, from.n - rest->n};
    return *why ? -1 : 1;
}

int bytes_equal(struct bytes bytes, const char *text) {
    return bytes.n == strlen(text) && memcmp(bytes.data, text, bytes.n) == 0;
}

int bytes_number(struct bytes bytes, uint64_t *value) {
    *value = 0;
    for (size_t i = 0; i < bytes.n; i++) {
        unsigned digit = (unsigned char)bytes.data[i] - (unsigned)'0';
        if (digit > 9 || *value > (UINT64_MAX - digit) / 10) {
            return 0;
        }
        *value = *value * 10 + digit;
    }
    return bytes.n > 0;
}

/* ---- writing --------------------------------------------------------------------------------- */

static int writer_grow(struct writer *writer, size_t cap) {
    char *grown = realloc(writer->data, cap);
    if (!grown) {
        writer->no_memory = 1;
        return 0;
    }
    writer->data = grown;
    writer->cap = cap;
    return 1;
}

void writer_reserve(struct writer *writer, size_t n) {
    if (!writer->no_memory && n <= INT_MAX - writer->n && n > writer->cap - writer->n) {
        (void)writer_grow(writer, writer->n + n);
    }
}

void writer_add(struct writer *writer, const void *data, size_t n) {
    if (n == 0 || writer->no_memory || writer->too_large) {
        return;
    }
    if (n > INT_MAX - writer->n) {
        writer->too_large = 1;
        return;
    }
    if (n > writer->cap - writer->n && !writer_grow(writer, writer->cap + writer->cap / 2 + n)) {
        return;
    }
    memcpy(writer->data + writer->n, data, n);
    writer->n += n;
}

static void add_varint(struct writer *writer, uint64_t value) {
    char bytes[MAX_VARINT_BYTES];
    size_t n = 0;
    for (; value >= 0x80; value >>= 7) {
        bytes[n++] = (char)(value | 0x80);
    }
    bytes[n++] = (char)value;
    writer_add(writer, bytes, n);
}

void writer_add_number(struct writer *writer, uint32_t number, uint64_t value) {
    add_varint(writer, (uint64_t)number << 3 | WIRE_VARINT);
    add_varint(writer, value);
}

void writer_add_head(struct writer *writer, uint32_t number, size_t n) {
    add_varint(writer, (uint64_t)number << 3 | WIRE_BYTES);
    add_varint(writer, n);
}

void writer_add_bytes(struct writer *writer, uint32_t number, struct bytes bytes) {
    writer_add_head(writer, number, bytes.n);
    writer_add(writer, bytes.data, bytes.n);
}

void writer_add_message(struct writer *writer, uint32_t number, struct writer *message) {
    writer_add_bytes(writer, number, (struct bytes){message->data, message->n});
    writer->no_memory = writer->no_memory || message->no_memory;
    writer->too_large = writer->too_large || message->too_large;
    free(message->data);
    *message = (struct writer){0};
}
