/* What every model and instance is doing, as a text for people: for telemetry/admin/state.h. */
#ifndef SLUICE_SERVE_ADMIN_MODELS_H
#define SLUICE_SERVE_ADMIN_MODELS_H

#include "core/base/buf.h"
#include "serve/repository/repository.h"

/* `context` is the repository. Thread: any. */
void admin_models_print(void *context, struct buf *out);

#endif
