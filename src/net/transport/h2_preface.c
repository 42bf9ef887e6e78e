/* Compares the first bytes one by one. */
#include "net/transport/h2_preface.h"

#include <assert.h>
#include <stdbool.h>

static const char PREFACE[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

static_assert(sizeof(PREFACE) - 1 == H2_PREFACE_BYTES, "the preface has 24 bytes");

struct str h2_preface_bytes(size_t n) {
    assert(n <= H2_PREFACE_BYTES);
    return str_make(PREFACE, n);
}

size_t h2_preface_match(size_t n_before, struct str data) {
    size_t n = 0;
    while (n < data.len && n_before + n < H2_PREFACE_BYTES &&
           data.ptr[n] == PREFACE[n_before + n]) {
        n++;
    }
    return n;
}

/* Matches a method, a space, and the start of a request target (RFC 9112, 3.2). */
static enum h2_preface_result match_http1(const struct h2_preface *preface) {
    unsigned n = 0;
    while (n < preface->n && preface->bytes[n] >= 'A' && preface->bytes[n] <= 'Z') {
        n++;
    }
    if (n == preface->n) {
        return n < H2_PREFACE_BYTES ? H2_PREFACE_MORE : H2_PREFACE_OTHER;
    }
    if (n == 0 || preface->bytes[n] != ' ') {
        return H2_PREFACE_OTHER;
    }
    if (n + 1 == preface->n) {
        return n + 1 < H2_PREFACE_BYTES ? H2_PREFACE_MORE : H2_PREFACE_OTHER;
    }
    char first = preface->bytes[n + 1];
    bool is_target = first == '/' || first == '*' || first == 'h';
    return is_target ? H2_PREFACE_HTTP1 : H2_PREFACE_OTHER;
}

enum h2_preface_result h2_preface_add(struct h2_preface *preface, struct str *data) {
    enum h2_preface_result result = (enum h2_preface_result)preface->result;
    while (result == H2_PREFACE_MORE && data->len > 0) {
        preface->bytes[preface->n++] = *data->ptr;
        *data = str_make(data->ptr + 1, data->len - 1);
        if (memcmp(preface->bytes, PREFACE, preface->n) != 0) {
            result = match_http1(preface);
        } else if (preface->n == H2_PREFACE_BYTES) {
            result = H2_PREFACE_OK;
        }
    }
    preface->result = (unsigned char)result;
    return result;
}
