/* Putting the operators' side together. */
#include "program/model_server/admin.h"

#include <assert.h>

#include "serve/admin/models.h"

enum status serve_admin_open(struct serve_admin *self, const struct serve_settings *settings,
                             const struct http_limits *limits, struct repository *repository,
                             struct worker *main, struct error *err) {
    admin_metrics_init(&self->metrics, repository, SLUICE_VERSION);
    self->has_metrics = true;
    self->api = (struct admin_api){
        .metrics = &self->metrics,
        .state = {.print = admin_models_print, .context = repository, .worker = main}};
    return admin_listener_open(&self->listener, settings->metrics, limits,
                               admin_api_handler(&self->api), main, err);
}

void serve_admin_add_server(struct serve_admin *self, const char *name, struct net_server *server) {
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
    admin_listener_free(&self->listener);
    if (self->has_metrics) {
        admin_metrics_fini(&self->metrics);
    }
}
