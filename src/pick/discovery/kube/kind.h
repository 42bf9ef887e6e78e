/* Which kinds of objects are read of a cluster (kind.def). Which of them it has is found out.
 *
 * Thread: any. */
#ifndef SLUICE_PICK_DISCOVERY_KUBE_KIND_H
#define SLUICE_PICK_DISCOVERY_KUBE_KIND_H

#include <stdbool.h>

enum kube_kind {
#define KUBE_KIND(id, group, version, resource, kind) KUBE_##id,
#include "pick/discovery/kube/kind.def"
#undef KUBE_KIND
    N_KUBE_KINDS,
};

struct kube_kind_info {
    const char *group; /* "": the core's */
    const char *version;
    const char *resource; /* as paths have it: "inferencepools" */
    const char *kind;
};

extern const struct kube_kind_info KUBE_KINDS[N_KUBE_KINDS];

/* An InferencePool, of one group or the other. */
bool kube_kind_is_pool(enum kube_kind kind);

#endif
