/* The greeting on a terminal. */
#include "program/model_server/greeting.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/plural.h"
#include "program/options/example.h"

struct served {
    size_t n;
    struct model_version *first; /* NULL: none */
    size_t n_failed;
    struct buf failed; /* names of models */
    struct str last;   /* of them */
};

static void count_model(void *user, const struct repository_entry *entry) {
    struct served *served = user;
    if (entry->phase == REPOSITORY_READY) {
        served->n++;
        served->first = served->first ? served->first : entry->version;
    } else if (entry->phase == REPOSITORY_FAILED && !str_eq(entry->model, served->last)) {
        buf_add_str(&served->failed, served->n_failed++ > 0 ? STR(", ") : STR(""));
        buf_add_printable(&served->failed, entry->model);
        served->last = entry->model;
    }
}

/* "http://127.0.0.1:8000" */
static const char *first_url(const struct serve_listeners *listeners, size_t from, size_t n) {
    return n > 0 ? listeners->addresses[from].url : NULL;
}

void greeting_print(const struct serve_listeners *listeners, bool ready) {
    const struct serve_settings *settings = listeners->settings;
    struct served served = {0};
    struct buf text;
    if (settings->log_format != LOG_TEXT || !isatty(STDERR_FILENO)) {
        return;
    }
    buf_init(&text, listeners->arena, 0);
    buf_init(&served.failed, listeners->arena, 0);
    repository_visit(listeners->repository, count_model, &served);
    const char *http = first_url(listeners, 0, settings->http.n);
    const char *grpc = first_url(listeners, settings->http.n, settings->grpc.n);
    const char *page = listeners->http_api.status_url;
    const char *url = http ? http : grpc;
    buf_printf(&text, "\n%s: %zu model%s", ready ? "ready" : "not ready", served.n,
               plural_s(served.n));
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
    if (served.n_failed > 0) {
        buf_add_str(&text, STR("\nfailed: "));
        buf_add_str(&text, buf_str(&served.failed));
        buf_add_str(&text, STR(", see the errors above"));
    }
    if (!ready && served.n > 0) {
        buf_add_str(&text, STR("; --strict-readiness false: ready without"));
    }
    buf_add_str(&text, STR("\nstop:  Ctrl-C\n\n"));
    fwrite(text.data, 1, text.len, stderr);
}
