/* The nc command of a packet. */
#include "program/commands/packet_command.h"

#include "program/requests/shell.h"

/* Without a half-close, which would cancel the packet (docs/mip.md). */
static void print_nc(struct buf *out, const struct client_url *url) {
    buf_add_str(out, STR("nc -q 1 "));
    if (url->is_unix) {
        buf_add_str(out, STR("-U "));
        shell_word_print(out, url->path);
    } else {
        buf_printf(out, "%.*s %u", STR_ARG(url->host), (unsigned)url->port);
    }
}

/* Prints one printf for all parts before the next one with a file. Returns: the index of that part.
 */
static size_t print_inline(struct buf *out, const struct packet_part *parts, size_t i, size_t n) {
    struct buf bytes;
    buf_init(&bytes, out->arena, 0);
    for (; i < n && !parts[i].file; i++) {
        buf_add_str(&bytes, parts[i].bytes);
    }
    shell_printf_print(out, buf_str(&bytes));
    return i;
}

static void print_parts(struct buf *out, const struct packet_part *parts, size_t n) {
    size_t first = 0;
    while (first < n && !parts[first].file) {
        first++;
    }
    bool group = first < n; /* otherwise one printf is enough */
    buf_add_str(out, group ? STR("{ ") : STR(""));
    for (size_t i = 0; i < n;) {
        if (parts[i].file) {
            buf_add_str(out, STR("cat -- "));
            shell_word_print(out, str_of(parts[i++].file));
        } else {
            i = print_inline(out, parts, i, n);
        }
        buf_add_str(out, i < n ? STR(";\n  ") : STR(""));
    }
    buf_add_str(out, group ? STR("; } |\n") : STR(" |\n"));
}

void packet_command_print(struct buf *out, const struct client_url *url,
                          const struct packet_part *parts, size_t n, const char *packet_file) {
    if (!packet_file) {
        print_parts(out, parts, n);
    }
    print_nc(out, url);
    if (packet_file) {
        buf_add_str(out, STR(" <"));
        shell_word_print(out, str_of(packet_file));
    }
    buf_add_str(out, STR(" | od -A x -t x1z -v\n"));
}

uint64_t packet_command_inline_bytes(const struct packet_part *parts, size_t n) {
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < n; i++) {
        n_bytes += parts[i].file ? 0 : parts[i].bytes.len;
    }
    return n_bytes;
}
