/* Encodes what request.c decodes: one form for both, so that a session reads one. */
#include "codec/ext_proc/parts.h"

#include <string.h>

#include "codec/ext_proc/fields.h"

/* ---- headers --------------------------------------------------------------------------------- */

/* Of a header as ext_proc_header_next_compact reads it: tags and lengths of the header, of its key
 * and of its value, a byte each. */
enum { COMPACT_OVERHEAD = 6, COMPACT_MAX = 127 + 2, LONG_OVERHEAD = 6 + 3 * 9 };

static bool is_compact(const struct ext_proc_header *header) {
    return header->key.len <= COMPACT_MAX && header->value.len <= COMPACT_MAX &&
           header->key.len + header->value.len + COMPACT_OVERHEAD <= COMPACT_MAX;
}

static char *put_text(char *at, uint32_t number, struct str text) {
    *at++ = (char)(number << 3 | PB_BYTES);
    *at++ = (char)text.len;
    if (text.len > 0) {
        memcpy(at, text.ptr, text.len);
    }
    return at + text.len;
}

static void add_compact(struct buf *out, const struct ext_proc_header *header) {
    char bytes[COMPACT_MAX];
    size_t n_inside = header->key.len + header->value.len + COMPACT_OVERHEAD - 2;
    bytes[0] = EXT_PROC_F_MAP_HEADER << 3 | PB_BYTES;
    bytes[1] = (char)n_inside;
    char *at = put_text(bytes + 2, EXT_PROC_F_HEADER_KEY, header->key);
    (void)put_text(at, EXT_PROC_F_HEADER_RAW_VALUE, header->value);
    buf_add_str(out, str_make(bytes, n_inside + 2));
}

static void add_long(struct buf *out, const struct ext_proc_header *header) {
    size_t start = pb_begin(out, EXT_PROC_F_MAP_HEADER);
    pb_add_bytes(out, EXT_PROC_F_HEADER_KEY, header->key);
    pb_add_bytes(out, EXT_PROC_F_HEADER_RAW_VALUE, header->value);
    pb_end(out, start);
}

enum status ext_proc_headers_make(struct arena *arena, const struct ext_proc_header *headers,
                                  size_t n, struct ext_proc_headers *out, struct error *err) {
    struct buf bytes;
    size_t n_bytes = 0;
    for (size_t i = 0; i < n; i++) {
        n_bytes += headers[i].key.len + headers[i].value.len + LONG_OVERHEAD;
    }
    buf_init(&bytes, arena, n_bytes);
    out->is_compact = true;
    for (size_t i = 0; i < n; i++) {
        if (is_compact(&headers[i])) {
            add_compact(&bytes, &headers[i]);
        } else {
            add_long(&bytes, &headers[i]);
            out->is_compact = false;
        }
    }
    out->bytes = n > 0 ? buf_str(&bytes) : STR("");
    return bytes.failed ? error_no_memory(err, "a request's headers") : ST_OK;
}

/* ---- metadata and attributes ----------------------------------------------------------------- */

static struct str make_struct(struct arena *arena, uint32_t number,
                              const struct ext_proc_namespace *spaces, size_t n) {
    struct buf bytes;
    if (n == 0) {
        return STR("");
    }
    buf_init(&bytes, arena, 256);
    ext_proc_struct_add(&bytes, number, spaces, n, false);
    return bytes.failed ? str_make(NULL, 0) : buf_str(&bytes);
}

struct str ext_proc_metadata_make(struct arena *arena, const struct ext_proc_namespace *spaces,
                                  size_t n) {
    return make_struct(arena, EXT_PROC_F_FILTER_METADATA, spaces, n);
}

struct str ext_proc_struct_make(struct arena *arena, const struct ext_proc_namespace *space) {
    struct buf bytes;
    buf_init(&bytes, arena, 256);
    ext_proc_struct_add_entries(&bytes, space);
    return bytes.failed || !bytes.data ? str_make(NULL, 0) : buf_str(&bytes);
}
