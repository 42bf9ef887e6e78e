/* The table of kinds. */
#include "pick/discovery/kube/kind.h"

const struct kube_kind_info KUBE_KINDS[N_KUBE_KINDS] = {
#define KUBE_KIND(id, group, version, resource, kind)                                              \
    [KUBE_##id] = {(group), (version), (resource), (kind)},
#include "pick/discovery/kube/kind.def"
#undef KUBE_KIND
};

bool kube_kind_is_pool(enum kube_kind kind) {
    return kind == KUBE_POOL || kind == KUBE_POOL_ALPHA;
}
