/* Lists everything that a cluster has of the pool once, on a thread of its own, for `sluice pick
 * --check` and `--explain`.
 *
 * Thread: main. */
#ifndef SLUICE_PROGRAM_PICKER_CLUSTER_H
#define SLUICE_PROGRAM_PICKER_CLUSTER_H

#include "core/base/buf.h"
#include "program/picker/settings.h"

struct pick_cluster;

/* Blocks until everything is listed, for ten seconds at most. `*out` is NULL without --kube.
 * Returns: an error. Owns: *out until pick_cluster_free. */
enum status pick_cluster_load(const struct pick_settings *settings, struct pick_cluster **out,
                              struct error *err) SLUICE_MUST_USE;
/* NULL is allowed. */
void pick_cluster_free(struct pick_cluster *cluster);

/* NULL if `cluster` is NULL. */
const struct kube_store *pick_cluster_store(const struct pick_cluster *cluster);
/* Prints a summary of the cluster's objects. */
void pick_cluster_print(const struct pick_cluster *cluster, struct buf *out);

#endif
