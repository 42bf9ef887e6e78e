/* The class labels of a served version's outputs: read when the version is opened, never
 * changed. */
#ifndef SLUICE_SERVE_FRONTEND_MODEL_LABELS_H
#define SLUICE_SERVE_FRONTEND_MODEL_LABELS_H

#include "serve/frontend/labels.h"
#include "serve/scheduler/model_version.h"

/* Reads the label files that the configuration names and adds them to the version, which is being
 * opened. Returns: ST_BAD_CONFIG, ST_NO_MEMORY. */
enum status model_labels_load(struct model_version *version, struct error *err)
    __attribute__((warn_unused_result));
/* One per output of the specification; one without labels has n 0. Thread: any. */
const struct labels *model_labels(const struct model_version *version);

#endif
