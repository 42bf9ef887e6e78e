/* What the front ends keep with each version of a model, made when it is opened: what they need of
 * its configuration and its files is read then, not when a request comes. It never changes. */
#ifndef SLUICE_SERVE_OPENED_H
#define SLUICE_SERVE_OPENED_H

#include "model/repository.h"
#include "serve/labels.h"
#include "serve/mip_plan.h"

struct opened {
    const struct mip_plan *mip;
    const struct labels *labels; /* one per output of the specification; none: n is 0 */
};

/* For repository_options.opened. The model does not load when its settings are wrong, or a file of
 * labels that it names. Returns: ST_BAD_CONFIG, ST_NO_MEMORY. */
enum status opened_make(void *cookie, struct model_version *version, struct error *err)
    __attribute__((warn_unused_result));
/* What opened_make made. Thread: any. */
const struct opened *opened_of(const struct model_version *version);

#endif
