/* Start and end of the MIP server, and its listeners. */
#include "program/model_server/mip.h"

#include "core/base/log.h"
#include "serve/frontend/mip/plan.h"

/* The queue of pictures to decode, for all packets. Each packet has few in it, so that only
 * hundreds of clients at once fill it; further ones wait longer. */
enum { MAX_QUEUED_PICTURES = 16384 };

enum status serve_mip_targets(const struct serve_settings *settings, struct arena *arena,
                              struct mip_target **out, struct error *err) {
    struct mip_target *targets = arena_calloc(arena, settings->mip.n, sizeof(*targets));
    for (size_t i = 0; i < settings->mip.n; i++) {
        const char *text = settings->mip.items[i];
        enum status st = mip_target_parse(str_of(text), &targets[i], err);
        if (st != ST_OK) {
            return error_prefix(err, "--mip %s", text);
        }
    }
    *out = targets;
    return ST_OK;
}

enum status serve_mip_resolve(const struct serve_settings *settings, struct mip_target *targets,
                              struct repository *repository, struct error *err) {
    for (size_t i = 0; i < settings->mip.n; i++) {
        if (mip_target_resolve(&targets[i], repository, err) != ST_OK) {
            return error_prefix(err, "--mip %s", settings->mip.items[i]);
        }
    }
    return ST_OK;
}

enum status serve_mip_pictures(const struct serve_settings *settings, unsigned n_threads,
                               struct net_budget *budget, struct pictures **out,
                               struct error *err) {
    struct pictures_options options = {.part = settings->picture_part,
                                       .picture_threads = n_threads,
                                       .max_queued = MAX_QUEUED_PICTURES,
                                       .max_picture_pixels = settings->max_picture_pixels};
    if (budget) {
        options.memory = (struct picture_memory){.take = net_budget_take_picture,
                                                 .give = net_budget_give_picture,
                                                 .limit = net_budget_large_limit(budget),
                                                 .user = budget};
    }
    return pictures_new(&options, out, err);
}

static enum status listen_all(struct serve_mip *self, const struct serve_settings *settings,
                              struct address *bound, struct error *err) {
    for (size_t i = 0; i < self->n_targets; i++) {
        const struct mip_target *target = &self->targets[i];
        enum status st = mip_server_listen(self->server, &target->address, target, &bound[i], err);
        if (st != ST_OK) {
            return error_prefix(err, "--mip %s", settings->mip.items[i]);
        }
        char url[MIP_URL_BYTES];
        log_event(LOG_INFO, "listening", LOG_CSTR("mip", mip_url_print(&bound[i], url)),
                  LOG_STR("model", target->model));
    }
    return ST_OK;
}

enum status serve_mip_open(struct serve_mip *self, const struct serve_settings *settings,
                           const struct inference_services *services,
                           const struct mip_server_options *options, struct arena *arena,
                           struct address *bound, struct error *err) {
    struct mip_server_options all = *options;
    if (settings->mip.n == 0) {
        return ST_OK;
    }
    enum status st = serve_mip_targets(settings, arena, &self->targets, err);
    if (st == ST_OK) {
        self->n_targets = settings->mip.n;
        st = serve_mip_pictures(settings, (unsigned)settings->picture_threads, options->budget,
                                &self->pictures, err);
    }
    if (st != ST_OK) {
        return st;
    }
    self->api = (struct mip_api){
        .services = *services,
        .pictures = self->pictures,
        .request_memory = settings->request_memory,
    };
    all.handler = mip_api_handler(&self->api);
    st = mip_server_new(&all, &self->server, err);
    return st == ST_OK ? listen_all(self, settings, bound, err) : st;
}

/* ---- after the models have loaded ------------------------------------------------------------ */

/* Returns: a listener whose model takes pictures that must be decoded; NULL: none. */
static const struct mip_target *find_decoding(const struct serve_mip *self) {
    for (size_t i = 0; i < self->n_targets; i++) {
        const struct mip_target *target = &self->targets[i];
        struct model_version *version;
        if (repository_find(self->api.services.repository, target->model, target->version, &version,
                            NULL) != ST_OK) {
            continue;
        }
        bool decodes = mip_plan_decodes_pictures(mip_plan_of(version));
        model_version_unref(version);
        if (decodes) {
            return target;
        }
    }
    return NULL;
}

void serve_mip_on_models_loaded(const struct serve_mip *self) {
    struct error err;
    for (size_t i = 0; i < self->n_targets; i++) {
        struct mip_target target = self->targets[i];
        if (mip_target_resolve(&target, self->api.services.repository, &err) != ST_OK) {
            log_event(LOG_ERROR, "MIP listener without a model to serve",
                      LOG_CSTR("reason", err.text));
        }
    }
    const char *missing = self->pictures ? pictures_missing(self->pictures) : NULL;
    const struct mip_target *target = missing ? find_decoding(self) : NULL;
    if (target) {
        log_event(LOG_WARNING, "pictures cannot be decoded: an IMAGE is answered with an error",
                  LOG_STR("model", target->model), LOG_CSTR("reason", missing));
    }
}

/* ---- stop and free --------------------------------------------------------------------------- */

void serve_mip_stop_pictures(struct serve_mip *self) {
    pictures_free(self->pictures);
    self->pictures = NULL;
}

void serve_mip_free(struct serve_mip *self) {
    mip_server_free(self->server);
}
