/* The MIP server of the running process: its listeners, each with the model it serves, and the
 * picture decoder. Empty without --mip. */
#ifndef SLUICE_PROGRAM_MODEL_SERVER_MIP_H
#define SLUICE_PROGRAM_MODEL_SERVER_MIP_H

#include "core/base/arena.h"
#include "core/base/buf.h"
#include "net/transport/budget.h"
#include "program/model_server/settings.h"
#include "serve/frontend/mip/inference.h"
#include "serve/picture/picture.h"

struct serve_mip {
    struct mip_api api;
    struct mip_server *server; /* NULL: no --mip */
    struct pictures *pictures;
    struct mip_target *targets; /* one per --mip, in order */
    size_t n_targets;
};

/* Parses all --mip settings. Returns: ST_BAD_CONFIG with the setting. Owns: in `arena`. */
enum status serve_mip_targets(const struct serve_settings *settings, struct arena *arena,
                              struct mip_target **out, struct error *err) SLUICE_MUST_USE;
/* Finds the models of these targets, which need not be loaded. Returns: ST_BAD_CONFIG with the
 * setting. */
enum status serve_mip_resolve(const struct serve_settings *settings, struct mip_target *targets,
                              struct repository *repository, struct error *err) SLUICE_MUST_USE;
/* Loads the picture decoder with that many threads, whose memory counts in `budget`; NULL: it is
 * not counted. A missing decoder is no error. Returns:
 * ST_NO_MEMORY, ST_IO. */
enum status serve_mip_pictures(const struct serve_settings *settings, unsigned n_threads,
                               struct net_budget *budget, struct pictures **out,
                               struct error *err) SLUICE_MUST_USE;

/* Creates the server and listens on each address; `bound` (one per --mip) gets the actual
 * addresses. `options` are the server's, without handler and limits. Returns: why it failed;
 * serve_mip_free frees what was created. */
enum status serve_mip_open(struct serve_mip *self, const struct serve_settings *settings,
                           const struct inference_services *services,
                           const struct mip_server_options *options, struct arena *arena,
                           struct address *bound, struct error *err) SLUICE_MUST_USE;
/* Logs what the listeners cannot do. Call it when the models have loaded. */
void serve_mip_on_models_loaded(const struct serve_mip *self);
/* Stops the decoder threads. Call it after the server has stopped, before the workers end. */
void serve_mip_stop_pictures(struct serve_mip *self);
/* Call it after the workers have ended. */
void serve_mip_free(struct serve_mip *self);

#endif
