/* A program that says who we are: what a kubeconfig has under "exec", what the program is told, and
 * what it answers (client.authentication.k8s.io, v1 and v1beta1). Without I/O. Nothing that is
 * secret gets into a sentence.
 *
 * Thread: one at a time. */
#ifndef SLUICE_PICK_DISCOVERY_KUBE_CREDENTIALS_EXEC_H
#define SLUICE_PICK_DISCOVERY_KUBE_CREDENTIALS_EXEC_H

#include "core/base/buf.h"
#include "core/base/doc/doc.h"
#include "core/os/credential.h"

struct kube_exec {
    char *version;             /* "client.authentication.k8s.io/v1" */
    char **argv;               /* the program first; ends with NULL */
    char **env;                /* "NAME=value"; ends with NULL */
    bool provide_cluster_info; /* it is told which cluster it is for */
    char *hint;                /* for who has no such program; NULL: none */
};

/* Which cluster; texts may be NULL, the certificates empty. */
struct kube_exec_cluster {
    const char *server, *tls_name;
    struct str ca;
    bool insecure;
    const char *extension; /* JSON, of the cluster's extension for programs */
};

/* What it answered: a token, or a certificate and its key, or all of them. */
struct kube_credential {
    struct credential token, cert, key;
    int64_t until_s; /* of the wall clock; INT64_MAX: it says no end */
};

/* `folder`: where the kubeconfig is. Returns: ST_BAD_CONFIG, ST_NO_MEMORY. Owns: *out until
 * kube_exec_free. */
enum status kube_exec_read(const struct doc_node *node, const char *folder, struct kube_exec **out,
                           struct error *err) __attribute__((warn_unused_result));
/* NULL is allowed. */
void kube_exec_free(struct kube_exec *exec);

/* Appends what the program finds in $KUBERNETES_EXEC_INFO. */
void kube_exec_print_info(const struct kube_exec *exec, const struct kube_exec_cluster *cluster,
                          struct buf *out);
/* Reads what the program printed, in place of what is there. Returns: ST_BAD_ANSWER,
 * ST_NO_MEMORY. */
enum status kube_exec_parse(const struct kube_exec *exec, struct str output,
                            struct kube_credential *out, struct error *err)
    __attribute__((warn_unused_result));
/* Overwrites it. */
void kube_credential_fini(struct kube_credential *credential);

#endif
