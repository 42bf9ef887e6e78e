/* The framing of BYTES elements. Each length is compared with the remaining bytes before it is
 * used. */
#include "core/tensor/bytes.h"

#include <inttypes.h>

#include "core/tensor/tensor.h"

static uint32_t read_length(const char *ptr) {
    const unsigned char *p = (const unsigned char *)ptr;
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

void bytes_encode_length(void *out, uint32_t length) {
    unsigned char *p = out;
    p[0] = (unsigned char)length;
    p[1] = (unsigned char)(length >> 8);
    p[2] = (unsigned char)(length >> 16);
    p[3] = (unsigned char)(length >> 24);
}

bool bytes_next(struct str *rest, struct str *element) {
    if (rest->len < BYTES_LENGTH_BYTES) {
        return false;
    }
    size_t length = read_length(rest->ptr);
    if (length > rest->len - BYTES_LENGTH_BYTES) {
        return false;
    }
    *element = str_make(rest->ptr + BYTES_LENGTH_BYTES, length);
    *rest =
        str_make(rest->ptr + BYTES_LENGTH_BYTES + length, rest->len - BYTES_LENGTH_BYTES - length);
    return true;
}

enum status bytes_check(struct str data, uint64_t expected, struct str tensor, struct error *err) {
    char name[QUOTED_NAME_BYTES];
    struct str rest = data, element;
    uint64_t n = 0;
    while (bytes_next(&rest, &element)) {
        n++;
    }
    if (rest.len > 0) {
        size_t at = data.len - rest.len;
        quote_name(tensor, name);
        if (rest.len < BYTES_LENGTH_BYTES) {
            return error_set(err, ST_BAD_DATA,
                             "tensor %s: element %" PRIu64
                             " at byte %zu: its length takes 4 bytes, "
                             "%zu are left",
                             name, n, at, rest.len);
        }
        return error_set(err, ST_BAD_DATA,
                         "tensor %s: element %" PRIu64 " at byte %zu has a length of %" PRIu32
                         " bytes, %zu are left",
                         name, n, at, read_length(rest.ptr), rest.len - BYTES_LENGTH_BYTES);
    }
    if (n != expected) {
        return error_set(err, ST_BAD_DATA,
                         "tensor %s: expected %" PRIu64
                         " BYTES elements as its shape says, got %" PRIu64,
                         quote_name(tensor, name), expected, n);
    }
    return ST_OK;
}
