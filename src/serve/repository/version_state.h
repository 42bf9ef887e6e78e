/* What a model version is doing right now, in words, for whoever looks into a running process:
 * which instances execute what, since when, and which requests wait. Bounded. */
#ifndef SLUICE_SERVE_REPOSITORY_VERSION_STATE_H
#define SLUICE_SERVE_REPOSITORY_VERSION_STATE_H

#include "core/base/buf.h"

struct model_version;

enum {
    MODEL_STATE_INSTANCES = 64, /* written down, of those that execute */
    MODEL_STATE_WAITING = 32,   /* the next ones */
};

/* Takes the queue's lock for as long as it takes to look at MODEL_STATE_WAITING requests. Thread:
 * any, while `version` is referenced. */
void model_version_dump(struct model_version *version, struct buf *out);

#endif
