/* Putting the operators' side together. */
#include "cli/serve_admin.h"

#include <assert.h>

#include "base/log.h"

enum { MAX_CONNECTIONS = 256 };

static const uint64_t BODY_BYTES = 65536; /* of requests, none of which needs one */

bool serve_admin_is_wanted(const struct serve_settings *settings) {
    return !str_is(str_of(settings->metrics), "none");
}

static enum status make_server(struct serve_admin *self, const struct http_limits *limits,
                               struct worker *main, struct error *err) {
    struct worker *const workers[] = {main};
    self->budget.body_memory_bytes = BODY_BYTES;
    self->budget.max_connections = MAX_CONNECTIONS;
    struct http_server_options options = {.limits = *limits,
                                          .budget = &self->budget,
                                          .handler = admin_api_handler(&self->api),
                                          .workers = workers,
                                          .n_workers = 1,
                                          .acceptor = main,
                                          .server_name = "sluice/" SLUICE_VERSION};
    options.limits.max_body_bytes = BODY_BYTES;
    return http_server_new(&options, &self->server, err);
}

enum status serve_admin_open(struct serve_admin *self, const struct serve_settings *settings,
                             const struct http_limits *limits, struct repository *repository,
                             struct worker *main, struct error *err) {
    struct address address;
    admin_metrics_init(&self->metrics, repository, SLUICE_VERSION);
    self->has_metrics = true;
    self->api = (struct admin_api){.metrics = &self->metrics,
                                   .state = {.repository = repository, .worker = main}};
    if (!serve_admin_is_wanted(settings)) {
        return ST_OK;
    }
    enum status st = make_server(self, limits, main, err);
    if (st == ST_OK) {
        st = address_parse(str_of(settings->metrics), &address, err);
    }
    if (st == ST_OK) {
        st = http_server_listen(self->server, &address, NULL, &self->address, err);
    }
    if (st != ST_OK) {
        return error_prefix(err, "--metrics %s", settings->metrics);
    }
    char text[ADDRESS_TEXT_BYTES];
    log_event(LOG_INFO, "listening", LOG_TEXT_OF("metrics", address_print(&self->address, text)));
    return ST_OK;
}

void serve_admin_watch(struct serve_admin *self, const char *name, struct net_server *server) {
    struct admin_state *state = &self->api.state;
    assert(state->n_servers < NET_REPORT_SERVERS);
    state->servers[state->n_servers++] = (struct net_report_server){name, server};
}

void serve_admin_log_state(struct serve_admin *self) {
    if (self->api.state.n_servers > 0) { /* the start has come so far */
        admin_state_log(&self->api.state);
    }
}

void serve_admin_free(struct serve_admin *self) {
    http_server_free(self->server);
    if (self->has_metrics) {
        admin_metrics_fini(&self->metrics);
    }
}
