/* From settings to TLS and keys. */
#include "program/model_server/guard.h"

#include "core/base/log.h"

struct serve_scheme serve_http_scheme(const struct serve_settings *settings) {
    return (struct serve_scheme){"http", "http", "https", settings->http_tls_cert != NULL};
}

struct serve_scheme serve_grpc_scheme(const struct serve_settings *settings) {
    return (struct serve_scheme){"grpc", "grpc", "grpcs", settings->grpc_tls_cert != NULL};
}

/* ---- settings -------------------------------------------------------------------------------- */

enum status serve_guard_check(const struct serve_settings *settings, struct error *err) {
    enum status st = serve_place_check_files(
        "http", settings->http_tls_cert, settings->http_tls_key, settings->http_tls_client_ca, err);
    return st == ST_OK
               ? serve_place_check_files("grpc", settings->grpc_tls_cert, settings->grpc_tls_key,
                                         settings->grpc_tls_client_ca, err)
               : st;
}

bool serve_guard_has_tls(const struct serve_settings *settings) {
    return settings->http_tls_cert || settings->grpc_tls_cert;
}

/* ---- files ----------------------------------------------------------------------------------- */

static enum status open_tls(const struct serve_settings *settings, struct serve_guard *self,
                            struct error *err) {
    struct tls_server_options http = {
        .cert = {"--http-tls-cert", settings->http_tls_cert},
        .key = {"--http-tls-key", settings->http_tls_key},
        .client_ca = {"--http-tls-client-ca", settings->http_tls_client_ca}};
    struct tls_server_options grpc = {
        .cert = {"--grpc-tls-cert", settings->grpc_tls_cert},
        .key = {"--grpc-tls-key", settings->grpc_tls_key},
        .client_ca = {"--grpc-tls-client-ca", settings->grpc_tls_client_ca}};
    time_t now = time(NULL);
    enum status st = http.cert.path ? tls_server_new(&http, now, &self->http_tls, err) : ST_OK;
    if (st == ST_OK && grpc.cert.path) {
        st = tls_server_new(&grpc, now, &self->grpc_tls, err);
    }
    return st;
}

/* What keys do not guard though it might be taken for guarded. */
static void note_open(const struct serve_guard *self, const struct serve_settings *settings) {
    for (int group = KEYS_INFER; group <= KEYS_HEALTH; group++) {
        log_event(
            LOG_INFO, "keys", LOG_TEXT_OF("group", keys_group_name((enum keys_group)group)),
            LOG_TEXT_OF("needed", keys_guard(self->keys, (enum keys_group)group) ? "yes" : "no"));
    }
    if (keys_guard(self->keys, KEYS_INFER) && settings->mip.n > 0) {
        log_event(LOG_WARNING, "MIP has no place for keys: who reaches its address may infer",
                  LOG_TEXT_OF("listener", settings->mip.items[0]));
    }
    if (!serve_guard_has_tls(settings)) {
        log_event(LOG_INFO, "keys travel readably where there is no TLS",
                  LOG_TEXT_OF("settings", "--http-tls-cert --grpc-tls-cert"));
    }
}

enum status serve_guard_open(struct serve_guard *self, const struct serve_settings *settings,
                             struct error *err) {
    enum status st = open_tls(settings, self, err);
    if (st == ST_OK && settings->keys) {
        st = keys_new(settings->keys, &self->keys, err);
        if (st != ST_OK) {
            return error_prefix(err, "--keys");
        }
        note_open(self, settings);
    }
    return st;
}

/* ---- looking again --------------------------------------------------------------------------- */

void serve_guard_look(struct serve_guard *self) {
    time_t now = time(NULL);
    if (self->http_tls) {
        tls_server_check(self->http_tls, now);
    }
    if (self->grpc_tls) {
        tls_server_check(self->grpc_tls, now);
    }
    if (self->keys) {
        keys_check(self->keys);
    }
}

static void on_timer(uv_timer_t *timer) {
    serve_guard_look(timer->data);
}

void serve_guard_watch(struct serve_guard *self, const struct serve_settings *settings,
                       struct worker *main) {
    uint64_t ms = settings->reload_interval_ns / 1000000;
    bool any = self->http_tls || self->grpc_tls || self->keys;
    if (!any || ms == 0) {
        return;
    }
    uv_timer_init(worker_loop(main), &self->timer); /* cannot fail */
    self->timer.data = self;
    self->timing = true;
    uv_timer_start(&self->timer, on_timer, ms, ms);
}

/* ---- the end --------------------------------------------------------------------------------- */

static void on_closed(uv_handle_t *handle) {
    struct serve_guard *self = handle->data;
    self->closed(self->cookie);
}

void serve_guard_stop(struct serve_guard *self, void (*closed)(void *cookie), void *cookie) {
    if (!self->timing) {
        closed(cookie);
        return;
    }
    self->timing = false;
    self->closed = closed;
    self->cookie = cookie;
    uv_close((uv_handle_t *)&self->timer, on_closed);
}

void serve_guard_free(struct serve_guard *self) {
    tls_server_free(self->http_tls);
    tls_server_free(self->grpc_tls);
    keys_free(self->keys);
}
