/* Where the API server of a cluster is, and how we show who we are: from a kubeconfig file, or from
 * what a pod is given. Files that it names are looked at again whenever something is asked
 * (pick/discovery/kube/client.h); this one is read once.
 *
 * Thread: one at a time. Reading files blocks: these are local, and small. */
#ifndef SLUICE_PICK_DISCOVERY_KUBE_CREDENTIALS_CONFIG_H
#define SLUICE_PICK_DISCOVERY_KUBE_CREDENTIALS_CONFIG_H

#include <stdbool.h>

#include "core/base/status.h"

struct kube_config;

struct kube_config_options {
    const char *file;    /* a kubeconfig; NULL: $KUBECONFIG names one, else the pod's */
    const char *context; /* of that file; NULL: its current one */
    const char *folder;  /* of the service account, whatever $KUBECONFIG says; NULL: that of pods */
};

/* Returns: ST_BAD_CONFIG with file and line, ST_IO, ST_NO_MEMORY; never with a secret in the
 * sentence. Owns: *out until kube_config_free. */
enum status kube_config_load(const struct kube_config_options *ask, struct kube_config **out,
                             struct error *err) __attribute__((warn_unused_result));
/* NULL is allowed. Overwrites what is secret. */
void kube_config_free(struct kube_config *config);

/* "https://10.96.0.1:443" */
const char *kube_config_server(const struct kube_config *config);
/* Of the context, or of the pod; NULL: it has none. */
const char *kube_config_namespace(const struct kube_config *config);

#endif
