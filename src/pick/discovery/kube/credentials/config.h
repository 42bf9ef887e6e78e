/* Where the API server of a cluster is, and how we show who we are: from a kubeconfig file, or from
 * what a pod is given. Files that it names are looked at again whenever something is asked
 * (pick/discovery/kube/client.h); this one is read once.
 *
 * Thread: one at a time. Reading files blocks: these are local, and small. */
#ifndef SLUICE_PICK_DISCOVERY_KUBE_CREDENTIALS_CONFIG_H
#define SLUICE_PICK_DISCOVERY_KUBE_CREDENTIALS_CONFIG_H

#include <stdbool.h>

#include "core/base/doc/doc.h"
#include "core/os/credential.h"
#include "pick/discovery/kube/credentials/exec.h"

struct kube_config {
    char *server;     /* without a slash at its end */
    char *name_space; /* NULL: none */
    char *tls_name;   /* that the server's certificate has; NULL: the host of the URL */
    bool insecure;
    struct credential ca, cert, key;
    struct credential token; /* that of a file comes before one that is given beside it */
    char *basic;             /* "Authorization: Basic …"; NULL: none */
    char **fields;           /* of the header, besides: as whom to act */
    size_t n_fields;
    struct kube_exec *exec; /* NULL: none */
    char *extension;        /* of the cluster, for the program: JSON; NULL: none */
};

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

/* ---- for exec.c ---- */

/* The member as text that may be secret: it is in no sentence. Returns: ST_BAD_CONFIG when it is
 * something else; `out` is left alone where there is none. */
enum status kube_config_secret(const struct doc_node *node, const char *key, struct str *out,
                               struct error *err) __attribute__((warn_unused_result));
/* A copy of the member; an empty one is none. */
enum status kube_config_text(const struct doc_node *node, const char *key, char **out,
                             struct error *err) __attribute__((warn_unused_result));
/* A path as whoever wrote a file in `folder` means it. Returns: NULL when out of memory. Owns: the
 * caller. */
char *kube_config_path(const char *folder, struct str path) __attribute__((warn_unused_result));

#endif
