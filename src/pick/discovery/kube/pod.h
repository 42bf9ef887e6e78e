/* What matters of a pod for a pool of model servers: where it is, whether it takes requests, and
 * its labels. Of a pod's ten thousand bytes that is some hundred.
 *
 * Thread: any. */
#ifndef SLUICE_PICK_DISCOVERY_KUBE_POD_H
#define SLUICE_PICK_DISCOVERY_KUBE_POD_H

#include "core/base/doc/doc.h"

#include "pick/pool/spec.h"

/* Immutable. One block of memory: free() ends it. */
struct kube_pod {
    struct str name;
    bool ready; /* so its condition says, it is not being deleted, and it has an address */
    struct endpoint_address address; /* without a port; family 0: it has none yet */
    struct str active_ports;         /* the annotation that narrows its ports; ptr NULL: none */
    struct pool_labels labels;
};

/* Reads a Pod of the API (v1). A pod with addresses of both families is where its podIP says, which
 * is the first of its podIPs. Returns: ST_BAD_CONFIG, ST_NO_MEMORY. Owns: *out until free(). */
enum status kube_pod_read(yyjson_val *object, struct kube_pod **out, struct error *err)
    __attribute__((warn_unused_result));
/* Would they make the same endpoints? */
bool kube_pod_equal(const struct kube_pod *a, const struct kube_pod *b);
/* May it be asked at this port? Items of the annotation that are no port say nothing. */
bool kube_pod_has_port(const struct kube_pod *pod, uint16_t port);

#endif
