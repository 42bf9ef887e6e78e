/* Builds a context from the files, and again whenever they change. */
#include "net/transport/tls/server.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/base/log.h"
#include "core/base/metric/metric.h"
#include "core/os/watched_file.h"
#include "net/transport/tls/context.h"
#include "net/transport/tls/self_signed.h"

/* A context's ticket key is replaced at least this often, by a new context. */
enum { RENEW_SECONDS = 12 * 3600, NAME_BYTES = 256 };

enum { CERT, KEY, CLIENT_CA, FILES };

struct tls_server {
    struct watched_file files[FILES]; /* path NULL: not configured */
    char names[FILES][NAME_BYTES];    /* "--http-tls-cert /etc/sluice/tls.crt" */
    bool only_1_3;
    struct tls_text suites;     /* name NULL: those that HTTP/2 allows */
    struct str self_signed_pem; /* certificate and key if self-signed; ptr NULL: from the files */
    struct tls_context *context;
    time_t made_at;       /* of the context, or of the last attempt */
    unsigned n_unsettled; /* looks in a row that found other files each; 0: they were taken */
};

/* ---- from files to a context ----------------------------------------------------------------- */

/* `*changed`: some file's content changed. Returns: the error of the first file that can't be
 * read. */
static enum status read_files(struct tls_server *server, bool *changed, struct error *err) {
    enum status st = ST_OK;
    for (size_t i = 0; i < FILES; i++) {
        struct error why;
        if (!server->files[i].path ||
            watched_file_read(&server->files[i], changed, &why) == ST_OK || st != ST_OK) {
            continue;
        }
        *err = why;
        st = error_prefix(err, "%s", server->names[i]);
    }
    return st;
}

static void clear_files(struct tls_server *server) {
    for (size_t i = 0; i < FILES; i++) {
        watched_file_clear(&server->files[i]);
    }
}

static struct tls_text text_of(const struct tls_server *server, size_t i) {
    if (server->self_signed_pem.ptr && i != CLIENT_CA) {
        return (struct tls_text){server->names[i], server->self_signed_pem};
    }
    bool given = server->files[i].path != NULL;
    return (struct tls_text){given ? server->names[i] : NULL, watched_file_text(&server->files[i])};
}

/* Replaces the context by one made from the files' content. */
static enum status make_context(struct tls_server *server, time_t now, struct error *err) {
    struct tls_texts texts = {text_of(server, CERT), text_of(server, KEY),
                              text_of(server, CLIENT_CA), server->only_1_3, server->suites};
    struct tls_context *context;
    struct error why;
    server->made_at = now;
    enum status st = tls_context_new(&texts, &context, err);
    if (st != ST_OK) {
        return st;
    }
    tls_context_unref(server->context);
    server->context = context;
    if (tls_context_check_dates(context, now, &why) != ST_OK) {
        log_event(LOG_WARNING, "TLS certificate not valid now",
                  LOG_CSTR("file", server->names[CERT]), LOG_CSTR("reason", why.text));
    }
    return ST_OK;
}

/* ---- creating and freeing a server ----------------------------------------------------------- */

static void set_file(struct tls_server *server, size_t i, const struct tls_file *file) {
    server->files[i].path = file->path;
    if (file->path) {
        snprintf(server->names[i], NAME_BYTES, "%s %s", file->setting, file->path);
    }
}

static enum status make_self_signed(struct tls_server *server, time_t now, struct error *err) {
    snprintf(server->names[CERT], NAME_BYTES, "the self-signed certificate");
    snprintf(server->names[KEY], NAME_BYTES, "its key");
    return tls_self_signed_new(now, &server->self_signed_pem, err);
}

enum status tls_server_new(const struct tls_server_options *options, time_t now,
                           struct tls_server **out, struct error *err) {
    struct tls_server *server = calloc(1, sizeof(*server));
    bool changed;
    if (!server) {
        return error_no_memory(err, "TLS");
    }
    set_file(server, CERT, &options->cert);
    set_file(server, KEY, &options->key);
    set_file(server, CLIENT_CA, &options->client_ca);
    server->only_1_3 = options->only_1_3;
    if (options->suites.path) {
        server->suites = (struct tls_text){options->suites.setting, str_of(options->suites.path)};
    }
    enum status st = options->self_signed ? make_self_signed(server, now, err) : ST_OK;
    if (st == ST_OK) {
        st = read_files(server, &changed, err);
    }
    if (st == ST_OK) {
        st = make_context(server, now, err);
    }
    clear_files(server);
    if (st != ST_OK) {
        tls_server_free(server);
        return st;
    }
    *out = server;
    return ST_OK;
}

void tls_server_free(struct tls_server *server) {
    if (server) {
        tls_context_unref(server->context);
        tls_self_signed_free(&server->self_signed_pem);
        free(server);
    }
}

struct tls_context *tls_server_context(const struct tls_server *server) {
    return tls_context_ref(server->context);
}

/* ---- reload ---------------------------------------------------------------------------------- */

/* The content changed, or `st` is the error of reading it. */
static bool reload_context(struct tls_server *server, enum status st, time_t now,
                           struct error *err) {
    if (st == ST_OK) {
        st = make_context(server, now, err);
    }
    if (st == ST_OK) {
        char expiry[TLS_DATE_BYTES];
        metric_add(METRIC_RELOADS_TLS, 1);
        log_event(LOG_INFO, "TLS files reloaded for new connections",
                  LOG_CSTR("file", server->names[CERT]),
                  LOG_CSTR("expires", tls_context_expiry(server->context, expiry)));
    } else {
        metric_add(METRIC_RELOAD_FAILURES_TLS, 1);
        log_event(LOG_ERROR, "TLS reload failed, keeping the previous files",
                  LOG_CSTR("reason", err->text));
    }
    return st == ST_OK;
}

/* Certificate and key are replaced one after the other, so all files must be the same in two looks
 * in a row. Those that change at each look are taken at some time, too. Returns: whether they are
 * to be taken. */
static bool has_settled(struct tls_server *server, bool changed, bool at_once) {
    bool settled = at_once || (server->n_unsettled > 0 && !changed) ||
                   server->n_unsettled >= WATCHED_FILE_MAX_UNSETTLED;
    server->n_unsettled = changed || server->n_unsettled > 0 ? server->n_unsettled + 1 : 0;
    return server->n_unsettled > 0 && settled;
}

bool tls_server_reload(struct tls_server *server, time_t now, bool at_once) {
    bool changed = false, made = false;
    struct error err;
    enum status st = read_files(server, &changed, &err);
    if (has_settled(server, changed, at_once)) {
        server->n_unsettled = 0;
        made = reload_context(server, st, now, &err);
    } else if (server->n_unsettled == 0 && st == ST_OK && now - server->made_at >= RENEW_SECONDS) {
        made = make_context(server, now, &err) == ST_OK; /* or the content was invalid before */
    }
    clear_files(server);
    return made;
}
