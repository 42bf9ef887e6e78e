/* The repository agent "checksum": files that must have the digests of the configuration. */
#ifndef SLUICE_SERVE_REPOSITORY_CHECKSUM_H
#define SLUICE_SERVE_REPOSITORY_CHECKSUM_H

#include <stdatomic.h>

#include "core/base/status.h"
#include "serve/repository/model.h"

/* Reads each file of model->config.checksums and compares its digest. `*cancelled` (NULL: never)
 * ends it. Returns: ST_BAD_MODEL, with the file and both digests, for a file that is missing or has
 * another one; ST_NOT_READY when it was cancelled or the file system fails. Thread: any that may
 * block: it takes as long as reading the files does. */
enum status checksums_verify(const struct model *model, const atomic_bool *cancelled,
                             struct error *err) SLUICE_MUST_USE;

#endif
