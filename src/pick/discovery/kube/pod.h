/* What a pool needs of a pod: its address, whether it is ready, and its labels: some hundred bytes
 * of the about ten thousand of the object.
 *
 * Thread: any. */
#ifndef SLUICE_PICK_DISCOVERY_KUBE_POD_H
#define SLUICE_PICK_DISCOVERY_KUBE_POD_H

#include "core/base/doc/doc.h"

#include "pick/pool/spec.h"

/* Immutable, one block of memory. Owns: freed by free(). */
struct kube_pod {
    struct str name;
    bool ready; /* its condition Ready is true, it is not being deleted, and it has an address */
    struct endpoint_address address; /* without a port; family 0: none yet */
    struct endpoint_address node;    /* of its host, without a port; family 0: unknown */
    struct str active_ports;         /* the annotation that restricts its ports; ptr NULL: none */
    struct str hostname;             /* of its spec; ptr NULL: none */
    struct pool_labels labels;
};

/* Reads a Pod of the API (v1). Of a pod with addresses of both families podIP is used, which is the
 * first of its podIPs. Returns: ST_BAD_CONFIG, ST_NO_MEMORY. Owns: *out until free(). */
enum status kube_pod_read(yyjson_val *object, struct kube_pod **out,
                          struct error *err) SLUICE_MUST_USE;
/* Do both result in the same endpoints? */
bool kube_pod_equal(const struct kube_pod *a, const struct kube_pod *b);
/* Is the port an endpoint of the pod? Items of the annotation that are not ports are ignored. */
bool kube_pod_has_port(const struct kube_pod *pod, uint16_t port);

#endif
