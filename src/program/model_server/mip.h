/* The MIP side of the running server: its listeners, each with the model it serves, and the
 * decoding of pictures. Nothing of it exists where no --mip is given. */
#ifndef SLUICE_PROGRAM_MODEL_SERVER_MIP_H
#define SLUICE_PROGRAM_MODEL_SERVER_MIP_H

#include "core/base/arena.h"
#include "core/base/buf.h"
#include "net/transport/budget.h"
#include "program/model_server/settings.h"
#include "serve/frontend/mip/api.h"
#include "serve/picture/picture.h"

struct serve_mip {
    struct mip_api api;
    struct mip_server *server; /* NULL: no --mip */
    struct pictures *pictures;
    struct mip_target *targets; /* one per --mip, in the order they were given */
    size_t n_targets;
};

/* Reads all --mip settings and holds them against the models, which need not be loaded. Returns:
 * ST_BAD_CONFIG naming the one that is wrong, ST_NO_MEMORY. Owns: in `arena`. */
enum status serve_mip_targets(const struct serve_settings *settings, struct repository *repository,
                              struct arena *arena, struct mip_target **out, struct error *err)
    __attribute__((warn_unused_result));
/* Loads the part that decodes pictures, with that many threads. Returns: ST_NO_MEMORY, ST_IO; that
 * it is missing is no error. */
enum status serve_mip_pictures(const struct serve_settings *settings, unsigned n_threads,
                               struct pictures **out, struct error *err)
    __attribute__((warn_unused_result));

/* Makes the server and listens on each address; `bound` (one per --mip) gets the real ones.
 * `options` are the server's, without handler and limits. Returns: why it can't be; what was made
 * until then is for serve_mip_close. */
enum status serve_mip_open(struct serve_mip *self, const struct serve_settings *settings,
                           struct repository *repository, struct tracer *tracer,
                           const struct mip_server_options *options, struct arena *arena,
                           struct address *bound, struct error *err)
    __attribute__((warn_unused_result));
/* The models have loaded: says in the log what their listeners can't do. */
void serve_mip_on_models_loaded(const struct serve_mip *self);
/* After the server has stopped, before the workers end: no picture is wanted any more. */
void serve_mip_stop_pictures(struct serve_mip *self);
/* After the workers have ended. */
void serve_mip_free(struct serve_mip *self);

#endif
