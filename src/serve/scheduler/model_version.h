/* The front ends' view of a served model version: specification, configuration, and user data that
 * they attach when it is opened.
 *
 * Thread: any. */
#ifndef SLUICE_SERVE_SCHEDULER_MODEL_VERSION_H
#define SLUICE_SERVE_SCHEDULER_MODEL_VERSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/str.h"
#include "core/tensor/tensor.h"

struct model_config;  /* serve/config/config.h */
struct model_version; /* specification, backend model, instances, queue */

/* Adds a reference. */
void model_version_ref(struct model_version *version);
void model_version_unref(struct model_version *version);

const struct model_spec *model_version_spec(const struct model_version *version);
/* All ready versions of the same model, ascending; valid until the worker's next loop iteration. */
const uint64_t *model_version_siblings(const struct model_version *version, size_t *n);
/* The completed configuration: inputs and outputs are in the order of the specification. */
const struct model_config *model_version_config(const struct model_version *version);
/* The directory of the files that the configuration names: the model's directory, or the directory
 * of a model that is a single file. Without a trailing '/'; "." for a bare file name. */
struct str model_version_directory(const struct model_version *version);

/* Returns: whether its backend can answer requests now: health checks say so. */
bool model_version_is_ready(const struct model_version *version);

/* The memory that a response of the version took of late, for those whose size does not follow from
 * the specification. 0: not known. */
uint64_t model_version_response_bytes(const struct model_version *version);
void model_version_note_response_bytes(struct model_version *version, uint64_t n_bytes);

/* Hosts whose requests the model refused, until when, and whether one is among them at `now_ns`. A
 * host is a hash; 0: not known. */
void model_version_note_failing_host(struct model_version *version, uint64_t host,
                                     uint64_t until_ns);
bool model_version_has_failing_host(const struct model_version *version, uint64_t host,
                                    uint64_t now_ns);

/* User data of the front ends, one slot each, and the arena for it; set only during
 * repository_options.on_version_opened. */
enum model_version_slot {
    MODEL_VERSION_LABELS, /* class labels of its outputs */
    MODEL_VERSION_MIP,    /* mapping of MIP items to its tensors */
    MODEL_VERSION_SLOTS,
};
struct arena *model_version_arena(struct model_version *version);
void model_version_set_user_data(struct model_version *version, enum model_version_slot slot,
                                 const void *data);
/* Returns: NULL when none was set. Thread: any. */
const void *model_version_user_data(const struct model_version *version,
                                    enum model_version_slot slot);

#endif
