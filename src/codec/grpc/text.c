/* The values of gRPC's header fields, parsed strictly and printed as the specification
 * prescribes. */
#include "codec/grpc/text.h"

#include <stdio.h>

#include "core/base/base64.h"
#include "core/base/hex.h"
#include "core/base/num.h"

/* ---- grpc-timeout ---------------------------------------------------------------------------- */

static const struct unit {
    char letter;
    uint64_t ns;
} UNITS[] = {
    {'n', 1},
    {'u', 1000},
    {'m', 1000000},
    {'S', UINT64_C(1000000000)},
    {'M', UINT64_C(60000000000)},
    {'H', UINT64_C(3600000000000)},
};

enum { N_UNITS = sizeof UNITS / sizeof UNITS[0], MAX_DIGITS = 8, MAX_VALUE = 99999999 };

bool grpc_timeout_parse(struct str text, uint64_t *ns) {
    uint64_t value;
    if (text.len < 2 || text.len > MAX_DIGITS + 1 ||
        !num_parse_u64(str_make(text.ptr, text.len - 1), &value)) {
        return false;
    }
    for (size_t i = 0; i < N_UNITS; i++) {
        if (UNITS[i].letter == text.ptr[text.len - 1]) {
            if (__builtin_mul_overflow(value, UNITS[i].ns, ns)) {
                *ns = UINT64_MAX;
            }
            return true;
        }
    }
    return false;
}

size_t grpc_timeout_print(uint64_t ns, char out[GRPC_TIMEOUT_BYTES]) {
    size_t i = 0;
    while (i + 1 < N_UNITS && (ns - 1) / UNITS[i].ns + 1 > MAX_VALUE) {
        i++;
    }
    uint64_t value = ns == 0 ? 0 : (ns - 1) / UNITS[i].ns + 1;
    return (size_t)snprintf(out, GRPC_TIMEOUT_BYTES, "%u%c", (unsigned)value, UNITS[i].letter);
}

/* ---- content-type ---------------------------------------------------------------------------- */

bool grpc_content_type_ok(struct str value) {
    struct str rest = value;
    if (str_eq(value, STR("application/grpc"))) {
        return true; /* the usual value */
    }
    struct str type = str_trim(str_cut(&rest, ';'));
    return str_eq_nocase(type, STR("application/grpc")) ||
           str_eq_nocase(type, STR("application/grpc+proto"));
}

/* ---- grpc-message ---------------------------------------------------------------------------- */

void grpc_status_message_print(struct buf *out, struct str text) {
    static const char digits[] = "0123456789ABCDEF";
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        if (c >= ' ' && c <= '~' && c != '%') {
            buf_add_char(out, text.ptr[i]);
        } else {
            buf_add_char(out, '%');
            buf_add_char(out, digits[c >> 4]);
            buf_add_char(out, digits[c & 15]);
        }
    }
}

struct str grpc_status_message_parse(struct arena *arena, struct str text) {
    if (text.len == 0 || !memchr(text.ptr, '%', text.len)) {
        return text;
    }
    char *out = arena_alloc(arena, text.len);
    size_t n = 0;
    for (size_t i = 0; out && i < text.len; i++) {
        bool escaped = text.ptr[i] == '%' && text.len - i > 2 && hex_value(text.ptr[i + 1]) >= 0 &&
                       hex_value(text.ptr[i + 2]) >= 0;
        out[n++] = escaped ? (char)(hex_value(text.ptr[i + 1]) << 4 | hex_value(text.ptr[i + 2]))
                           : text.ptr[i];
        i += escaped ? 2 : 0;
    }
    return str_make(out, n);
}

/* ---- binary metadata ------------------------------------------------------------------------- */

enum status grpc_binary_metadata_parse(struct arena *arena, struct str text, struct str *out,
                                       struct error *err) {
    size_t at = 0;
    enum status status = base64_parse(arena, text, out, &at);
    if (status == ST_NO_MEMORY) {
        return error_no_memory(err, "metadata");
    }
    return status == ST_OK
               ? ST_OK
               : error_set(err, status, "binary metadata is not base64 at its byte %zu", at);
}

/* ---- codings --------------------------------------------------------------------------------- */

static const char *const CODINGS[] = {
    [HTTP_IDENTITY] = "identity", [HTTP_GZIP] = "gzip", [HTTP_DEFLATE] = "deflate"};

enum { N_CODINGS = sizeof CODINGS / sizeof CODINGS[0] };

bool grpc_coding_parse(struct str name, enum http_coding *out) {
    for (size_t i = 0; i < N_CODINGS; i++) {
        if (str_is(name, CODINGS[i])) {
            *out = (enum http_coding)i;
            return true;
        }
    }
    return false;
}

const char *grpc_coding_name(enum http_coding coding) {
    return CODINGS[coding];
}

enum http_coding grpc_coding_choose(struct str accepted) {
    enum http_coding best = HTTP_IDENTITY;
    while (accepted.ptr) {
        enum http_coding coding;
        struct str name = str_trim(str_cut(&accepted, ','));
        if (grpc_coding_parse(name, &coding) && coding != HTTP_IDENTITY && best != HTTP_GZIP) {
            best = coding; /* gzip is the most widely tested */
        }
    }
    return best;
}

/* ---- the prefix ------------------------------------------------------------------------------ */

enum status grpc_prefix_decode(const char bytes[GRPC_PREFIX_BYTES], struct grpc_prefix *out,
                               struct error *err) {
    unsigned flag = (unsigned char)bytes[0];
    if (flag > 1) {
        return error_set(err, ST_BAD_REQUEST,
                         "the compressed flag of a message is %u, expected 0 or 1", flag);
    }
    out->compressed = flag;
    out->n_bytes = 0;
    for (size_t i = 1; i < GRPC_PREFIX_BYTES; i++) {
        out->n_bytes = out->n_bytes << 8 | (unsigned char)bytes[i];
    }
    return ST_OK;
}

void grpc_prefix_encode(struct grpc_prefix prefix, char out[GRPC_PREFIX_BYTES]) {
    out[0] = (char)prefix.compressed;
    for (size_t i = 1; i < GRPC_PREFIX_BYTES; i++) {
        out[i] = (char)(prefix.n_bytes >> (8 * (GRPC_PREFIX_BYTES - 1 - i)));
    }
}
