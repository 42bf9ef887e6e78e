/* The current state of a model version as text, for debugging a running process: which instances
 * execute what, since when, and which requests wait. The length is bounded. */
#ifndef SLUICE_SERVE_REPOSITORY_VERSION_STATE_H
#define SLUICE_SERVE_REPOSITORY_VERSION_STATE_H

#include "core/base/buf.h"

struct model_version;

enum {
    MODEL_STATE_INSTANCES = 64, /* busy instances printed */
    MODEL_STATE_WAITING = 32,   /* waiting requests printed */
};

/* Takes the queue's lock while it copies up to MODEL_STATE_WAITING requests. Thread: any, while
 * `version` is referenced. */
void model_version_dump(struct model_version *version, struct buf *out);

#endif
