/* What every model and instance is doing, as a text for people: for serve/admin_state.h. */
#ifndef SLUICE_SERVE_ADMIN_MODELS_H
#define SLUICE_SERVE_ADMIN_MODELS_H

#include "base/buf.h"
#include "model/repository.h"

/* `context` is the repository. Thread: any. */
void admin_models_print(void *context, struct buf *out);

#endif
