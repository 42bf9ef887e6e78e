/* The curl command of a request. */
#include "program/commands/curl_command.h"

#include <stdbool.h>
#include <string.h>

#include "core/base/utf8.h"
#include "program/requests/shell.h"

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
