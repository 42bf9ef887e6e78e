/* The dump of a request's bytes, and the curl or nc command that sends it. */
#include "program/commands/dry_run.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "core/base/utf8.h"
#include "program/requests/shell.h"

/* ---- bytes ----------------------------------------------------------------------------------- */

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

/* ---- curl ------------------------------------------------------------------------------------ */

/* Joins the pieces of the body. */
static struct str body_of(const struct client_request *request, struct arena *arena) {
    struct buf body;
    buf_init(&body, arena, 0);
    for (size_t i = 0; i < request->body.n_pieces; i++) {
        buf_add(&body, request->body.pieces[i].data, request->body.pieces[i].n_bytes);
    }
    return body.len > 0 ? buf_str(&body) : STR("");
}

/* Can the body be a word of the command? (curl reads a file when it begins with '@'.) */
static bool is_text(struct str body) {
    for (size_t i = 0; i < body.len; i++) {
        unsigned char c = (unsigned char)body.ptr[i];
        if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) {
            return false;
        }
    }
    return utf8_is_valid(body.ptr, body.len) && (body.len == 0 || body.ptr[0] != '@');
}

/* Prints the fields of the head except those that curl writes itself from URL and body, and
 * disables those that curl would add. */
static void print_fields(struct buf *out, struct str head) {
    struct str rest = head;
    (void)str_cut(&rest, '\n'); /* the request line */
    while (rest.ptr && rest.len > 0) {
        struct str line = str_cut(&rest, '\n');
        if (line.len > 0 && line.ptr[line.len - 1] == '\r') {
            line.len--;
        }
        if (line.len == 0 || str_starts_with(line, STR("Host:")) ||
            str_starts_with(line, STR("Content-Length:"))) {
            continue;
        }
        buf_add_str(out, STR(" \\\n  -H "));
        shell_word_print(out, line);
    }
    buf_add_str(out, STR(" \\\n  -H 'Accept:' -H 'Expect:'"));
}

static void print_data(struct buf *out, struct str body, const char *body_file) {
    buf_add_str(out, STR(" \\\n  --data-binary "));
    if (body_file) {
        shell_word_print(out, arena_printf(out->arena, "@%s", body_file));
    } else if (is_text(body)) {
        shell_word_print(out, body);
    } else {
        buf_add_str(out, STR("@-"));
    }
}

static void print_file(struct buf *out, const char *flag, const char *path) {
    if (path) {
        buf_printf(out, " --%s ", flag);
        shell_word_print(out, str_of(path));
    }
}

void curl_tls_print(struct buf *out, const struct tls_client_options *tls) {
    print_file(out, "cacert", tls->cacert);
    print_file(out, "cert", tls->cert);
    print_file(out, "key", tls->key);
    buf_add_str(out, tls->insecure ? STR(" --insecure") : STR(""));
}

void curl_command_print(struct buf *out, const struct client_url *url,
                        const struct tls_client_options *tls, const struct client_request *request,
                        const char *body_file) {
    struct str body = body_file ? STR("") : body_of(request, out->arena);
    if (!body_file && !is_text(body)) {
        shell_printf_print(out, body);
        buf_add_str(out, STR(" |\n"));
    }
    buf_add_str(out, STR("curl -sS --http1.1"));
    if (url->is_unix) {
        buf_add_str(out, STR(" --unix-socket "));
        shell_word_print(out, url->path);
    }
    curl_tls_print(out, tls);
    print_fields(out, request->head);
    print_data(out, body, body_file);
    buf_add_str(out, STR(" \\\n  "));
    shell_word_print(out, arena_printf(out->arena, "%s://%.*s%.*s", url->is_tls ? "https" : "http",
                                       STR_ARG(url->authority), STR_ARG(request->path)));
    buf_add_char(out, '\n');
}

/* ---- nc -------------------------------------------------------------------------------------- */

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
