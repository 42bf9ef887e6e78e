/* The greeting on a terminal. */
#include "program/model_server/greeting.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/log.h"
#include "program/options/example.h"

struct served {
    size_t n;
    struct model_version *first; /* NULL: none */
};

static void count_model(void *user, const struct repository_entry *entry) {
    struct served *served = user;
    if (entry->phase == REPOSITORY_READY) {
        served->n++;
        served->first = served->first ? served->first : entry->version;
    }
}

/* "http://127.0.0.1:8000" */
static const char *first_url(const struct serve_listeners *listeners, size_t from, size_t n) {
    return n > 0 ? listeners->addresses[from].url : NULL;
}

void greeting_print(const struct serve_listeners *listeners) {
    const struct serve_settings *settings = listeners->settings;
    struct served served = {0};
    struct buf text;
    if (settings->log_format != LOG_TEXT || !isatty(STDERR_FILENO)) {
        return;
    }
    buf_init(&text, listeners->arena, 0);
    repository_visit(listeners->repository, count_model, &served);
    const char *http = first_url(listeners, 0, settings->http.n);
    const char *grpc = first_url(listeners, settings->http.n, settings->grpc.n);
    const char *page = listeners->http_api.status_url;
    const char *url = http ? http : grpc;
    buf_printf(&text, "\nready: %zu model%s", served.n, served.n == 1 ? "" : "s");
    if (url) {
        buf_printf(&text, " at %s", url);
    }
    if (http && grpc) {
        buf_printf(&text, " and %s", grpc);
    }
    if (page) {
        buf_printf(&text, "; status page %s/", page);
    }
    if (url && served.first && !settings->keys) {
        buf_add_str(&text, STR("\ntry:   "));
        example_command_print(&text, url, model_version_spec(served.first));
    }
    buf_add_str(&text, STR("\nstop:  Ctrl-C\n\n"));
    if (!text.failed) {
        fwrite(text.data, 1, text.len, stderr);
    }
}
