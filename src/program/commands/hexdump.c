/* A dump of bytes in the form of hexdump -C. */
#include "program/commands/hexdump.h"

#include <inttypes.h>

enum { ROW_BYTES = 16 };

static void print_row(struct buf *out, const unsigned char *bytes, size_t n, uint64_t offset) {
    buf_printf(out, "%08" PRIx64 " ", offset);
    for (size_t i = 0; i < ROW_BYTES; i++) {
        if (i % 8 == 0) {
            buf_add_char(out, ' ');
        }
        if (i < n) {
            buf_printf(out, "%02x ", bytes[i]);
        } else {
            buf_add_str(out, STR("   "));
        }
    }
    buf_add_str(out, STR(" |"));
    for (size_t i = 0; i < n; i++) {
        buf_add_char(out, bytes[i] >= 0x20 && bytes[i] < 0x7f ? (char)bytes[i] : '.');
    }
    buf_add_str(out, STR("|\n"));
}

void hexdump_print(struct buf *out, struct str bytes, uint64_t offset) {
    for (size_t i = 0; i < bytes.len; i += ROW_BYTES) {
        size_t n = bytes.len - i < ROW_BYTES ? bytes.len - i : ROW_BYTES;
        print_row(out, (const unsigned char *)bytes.ptr + i, n, offset + i);
    }
}
