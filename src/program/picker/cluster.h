/* What a cluster knows of the pool at one moment, for a look at what it comes to: everything is
 * listed once, on a thread of its own.
 *
 * Thread: main. */
#ifndef SLUICE_PROGRAM_PICKER_CLUSTER_H
#define SLUICE_PROGRAM_PICKER_CLUSTER_H

#include "core/base/buf.h"
#include "program/picker/settings.h"

struct pick_cluster;

/* Of settings without --kube it is NULL. Blocks until everything is known, for ten seconds at most.
 * Returns: why it can't be. Owns: *out until pick_cluster_free. */
enum status pick_cluster_load(const struct pick_settings *settings, struct pick_cluster **out,
                              struct error *err) __attribute__((warn_unused_result));
/* NULL is allowed. */
void pick_cluster_free(struct pick_cluster *cluster);

/* NULL of NULL. */
const struct kube_store *pick_cluster_store(const struct pick_cluster *cluster);
/* Lines about what was found, for people. */
void pick_cluster_print(const struct pick_cluster *cluster, struct buf *out);

#endif
