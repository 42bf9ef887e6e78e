/* TLS contexts and keys of the settings, and their reloads. */
#include "program/model_server/security.h"

#include "core/base/log.h"

struct listen_scheme serve_http_scheme(const struct serve_settings *settings) {
    return (struct listen_scheme){"http", "http", "https", settings->http_tls_cert != NULL};
}

struct listen_scheme serve_grpc_scheme(const struct serve_settings *settings) {
    return (struct listen_scheme){"grpc", "grpc", "grpcs", settings->grpc_tls_cert != NULL};
}

/* ---- settings -------------------------------------------------------------------------------- */

enum status serve_security_check(const struct serve_settings *settings, struct error *err) {
    enum status st = listen_address_check_tls_files(
        "http", settings->http_tls_cert, settings->http_tls_key, settings->http_tls_client_ca, err);
    return st == ST_OK ? listen_address_check_tls_files("grpc", settings->grpc_tls_cert,
                                                        settings->grpc_tls_key,
                                                        settings->grpc_tls_client_ca, err)
                       : st;
}

bool serve_security_has_tls(const struct serve_settings *settings) {
    return settings->http_tls_cert || settings->grpc_tls_cert;
}

/* ---- files ----------------------------------------------------------------------------------- */

static enum status open_tls(const struct serve_settings *settings, struct serve_security *self,
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

/* Logs which key groups need a key, and warns about listeners that keys do not protect. */
static void note_open(const struct serve_security *self, const struct serve_settings *settings) {
    for (int group = KEYS_INFER; group <= KEYS_HEALTH; group++) {
        log_event(LOG_INFO, "keys", LOG_CSTR("group", keys_group_name((enum keys_group)group)),
                  LOG_CSTR("needed",
                           keys_are_required(self->keys, (enum keys_group)group) ? "yes" : "no"));
    }
    if (keys_are_required(self->keys, KEYS_INFER) && settings->mip.n > 0) {
        log_event(LOG_WARNING,
                  "MIP does not support keys: every client that can connect may run inferences",
                  LOG_CSTR("listener", settings->mip.items[0]));
    }
    if (!serve_security_has_tls(settings)) {
        log_event(LOG_INFO, "keys are sent in clear text over connections without TLS",
                  LOG_CSTR("settings", "--http-tls-cert --grpc-tls-cert"));
    }
}

enum status serve_security_open(struct serve_security *self, const struct serve_settings *settings,
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

/* ---- reload timer --------------------------------------------------------------------------- */

static void reload(struct serve_security *self, bool at_once) {
    time_t now = time(NULL);
    if (self->http_tls) {
        tls_server_reload(self->http_tls, now, at_once);
    }
    if (self->grpc_tls) {
        tls_server_reload(self->grpc_tls, now, at_once);
    }
    if (self->keys) {
        keys_reload(self->keys, at_once);
    }
}

void serve_security_reload(struct serve_security *self) {
    reload(self, true);
}

static void on_timer(uv_timer_t *timer) {
    reload(timer->data, false);
}

void serve_security_start_timer(struct serve_security *self, const struct serve_settings *settings,
                                struct worker *main) {
    uint64_t ms = settings->reload_interval_ns / 1000000;
    bool any = self->http_tls || self->grpc_tls || self->keys;
    if (!any || ms == 0) {
        return;
    }
    uv_timer_init(worker_loop(main), &self->timer); /* cannot fail */
    self->timer.data = self;
    self->timer_running = true;
    uv_timer_start(&self->timer, on_timer, ms, ms);
}

/* ---- stop and free --------------------------------------------------------------------------- */

static void on_closed(uv_handle_t *handle) {
    struct serve_security *self = handle->data;
    self->closed(self->user);
}

void serve_security_stop(struct serve_security *self, void (*closed)(void *user), void *user) {
    if (!self->timer_running) {
        closed(user);
        return;
    }
    self->timer_running = false;
    self->closed = closed;
    self->user = user;
    uv_close((uv_handle_t *)&self->timer, on_closed);
}

void serve_security_free(struct serve_security *self) {
    tls_server_free(self->http_tls);
    tls_server_free(self->grpc_tls);
    keys_free(self->keys);
}
