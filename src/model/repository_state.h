/* The repository's own members, for the files that share them: repository.c, repository_load.c,
 * repository_print.c. */
#ifndef SLUICE_MODEL_REPOSITORY_STATE_H
#define SLUICE_MODEL_REPOSITORY_STATE_H

#include <stdatomic.h>
#include <uv.h>

#include "loop/cpus.h"
#include "model/model.h"
#include "model/repository.h"

struct repository {
    struct arena *arena;    /* of main during repository_new, of the loader while it loads */
    struct model_list list; /* by name */
    struct model **slots;   /* by the hash of the name */
    size_t slot_mask;
    uint64_t default_max_batch_size;
    uint64_t max_queue_size;
    bool strict_readiness;
    enum status (*opened)(void *cookie, struct model_version *version, struct error *err);
    void *opened_cookie;
    struct cpus cpus;

    atomic_size_t n_unsettled; /* models still to be loaded */
    atomic_size_t n_failed;    /* models of which something could not be loaded */
    atomic_bool stopping;

    uv_thread_t loader; /* main's */
    bool has_loader;
    bool stopped;
    void (*loaded)(void *cookie);
    void *loaded_cookie;
};

/* Waits for the loader, if there is one. */
void repository_load_join(struct repository *repository);

/* "1, 3" */
enum { SERVED_TEXT_BYTES = 128 };
const char *ready_print(const struct ready_list *ready, char out[SERVED_TEXT_BYTES]);

#endif
