/* Which models may have trace settings of their own. */
#ifndef SLUICE_SERVE_TRACE_MODEL_H
#define SLUICE_SERVE_TRACE_MODEL_H

#include "serve/repository/repository.h"

/* Those that are served; empty: the server. Returns: ST_UNKNOWN_MODEL; ST_BAD_REQUEST for one that
 * is not ready. Clause: trace extension. */
static inline enum status trace_model_check(struct repository *repository, struct str model,
                                            struct error *err) {
    struct model_version *version = NULL;
    if (model.len == 0) {
        return ST_OK;
    }
    enum status st = repository_find(repository, model, str_make(NULL, 0), &version, err);
    if (st == ST_OK) {
        model_version_unref(version);
    }
    return st == ST_NOT_READY ? (err->status = ST_BAD_REQUEST) : st;
}

#endif
