/* The address of a cluster's API server and our credentials: from a kubeconfig file, or from a
 * pod's service account. The configuration is read once; the files that it names are read again for
 * each request (auth.h).
 *
 * Thread: one at a time. Reading files blocks: they are local, and small. */
#ifndef SLUICE_PICK_DISCOVERY_KUBE_CREDENTIALS_CONFIG_H
#define SLUICE_PICK_DISCOVERY_KUBE_CREDENTIALS_CONFIG_H

#include <stdbool.h>

#include "core/base/doc/doc.h"
#include "core/os/credential.h"
#include "pick/discovery/kube/credentials/exec.h"

struct kube_config {
    char *server;     /* without a trailing slash */
    char *name_space; /* NULL: none */
    char *tls_name;   /* the name in the server's certificate; NULL: the host of the URL */
    bool insecure;
    struct credential ca, cert, key;
    struct credential token; /* a token file has precedence over a token */
    char *basic;             /* "Authorization: Basic …"; NULL: none */
    char **fields;           /* more header fields: impersonation */
    size_t n_fields;
    struct kube_exec *exec; /* NULL: none */
    char *extension;        /* the cluster's extension for exec programs, JSON; NULL: none */
};

/* Settings of the picker (program/picker/settings.def). */
struct kube_config_options {
    const char *kubeconfig;   /* a file; NULL: that of $KUBECONFIG, or else the pod's */
    const char *kube_context; /* a context of that file; NULL: the current one */
    /* The folder of the service account, regardless of $KUBECONFIG; NULL: the usual one. */
    const char *service_account;
};

/* Returns: ST_BAD_CONFIG with file and line, ST_IO, ST_NO_MEMORY; error texts contain no secrets.
 * Owns: *out until kube_config_free. */
enum status kube_config_load(const struct kube_config_options *ask, struct kube_config **out,
                             struct error *err) SLUICE_MUST_USE;
/* NULL is allowed. Overwrites secrets. */
void kube_config_free(struct kube_config *config);

/* "https://10.96.0.1:443" */
const char *kube_config_server(const struct kube_config *config);
/* Of the context, or of the pod; NULL: none. */
const char *kube_config_namespace(const struct kube_config *config);

/* ---- for exec.c ---- */

/* Reads a text that may be secret and is not in error texts. Returns: ST_BAD_CONFIG if the member
 * is something else; an absent one leaves `*out` unchanged. */
enum status kube_config_secret(const struct doc_node *node, const char *key, struct str *out,
                               struct error *err) SLUICE_MUST_USE;
/* Copies a text; an empty one is like none. */
enum status kube_config_text(const struct doc_node *node, const char *key, char **out,
                             struct error *err) SLUICE_MUST_USE;
/* Resolves a path in a file of `folder`. Returns: NULL when out of memory. Owns: the caller. */
char *kube_config_path(const char *folder, struct str path) SLUICE_MUST_USE;

#endif
