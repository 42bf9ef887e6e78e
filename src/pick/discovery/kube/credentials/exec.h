/* A program that issues credentials: its configuration under "exec" in a kubeconfig, its input and
 * its output (client.authentication.k8s.io, v1 and v1beta1). Without I/O. Error texts contain no
 * secrets.
 *
 * Thread: one at a time. */
#ifndef SLUICE_PICK_DISCOVERY_KUBE_CREDENTIALS_EXEC_H
#define SLUICE_PICK_DISCOVERY_KUBE_CREDENTIALS_EXEC_H

#include "core/base/buf.h"
#include "core/base/doc/reader.h"
#include "core/os/credential.h"

struct kube_exec {
    char *version;             /* "client.authentication.k8s.io/v1" */
    char **argv;               /* the program first; ends with NULL */
    char **env;                /* "NAME=value"; ends with NULL */
    bool provide_cluster_info; /* the program gets the cluster's address */
    char *hint;                /* shown when the program is missing; NULL: none */
};

/* The cluster; texts may be NULL, the certificates empty. */
struct kube_exec_cluster {
    const char *server, *tls_name;
    struct str ca;
    bool insecure;
    const char *extension; /* the cluster's extension for programs, JSON */
};

/* A program's output: a token, or a certificate with its key, or both. */
struct kube_credential {
    struct credential token, cert, key;
    int64_t until_s; /* expiry by the wall clock; INT64_MAX: none */
};

/* A row of a kubeconfig, read by a struct kube_config_reader (config.h) into a struct kube_exec *,
 * which is in the configuration's arena. */
doc_member_fn kube_exec_read;
/* Overwrites arguments and environment, which may be secret. NULL is allowed. */
void kube_exec_wipe(struct kube_exec *exec);

/* Appends the value of $KUBERNETES_EXEC_INFO. */
void kube_exec_print_info(const struct kube_exec *exec, const struct kube_exec_cluster *cluster,
                          struct buf *out);
/* Parses the program's output into `*out`, whose old contents are freed. Returns: ST_BAD_ANSWER,
 * ST_NO_MEMORY. */
enum status kube_exec_parse(const struct kube_exec *exec, struct str output,
                            struct kube_credential *out, struct error *err) SLUICE_MUST_USE;
/* Overwrites the secrets. */
void kube_credential_fini(struct kube_credential *credential);

#endif
