/* The address of a cluster's API server and our credentials: from a kubeconfig file, or from a
 * pod's service account. The configuration is read once; the files that it names are read again for
 * each request (auth.h).
 *
 * Thread: one at a time. Reading files blocks: they are local, and small. */
#ifndef SLUICE_PICK_DISCOVERY_KUBE_CREDENTIALS_CONFIG_H
#define SLUICE_PICK_DISCOVERY_KUBE_CREDENTIALS_CONFIG_H

#include <stdbool.h>

#include "core/base/doc/reader.h"
#include "core/os/credential.h"
#include "pick/discovery/kube/credentials/exec.h"

struct kube_config {
    struct arena *arena; /* has the texts */
    char *server;        /* without a trailing slash */
    char *name_space;    /* NULL: none */
    char *tls_name;      /* the name in the server's certificate; NULL: the host of the URL */
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

/* Returns: ST_BAD_CONFIG with file and line, ST_IO; error texts contain no secrets.
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

struct kube_config_reader {
    struct doc_reader doc; /* first, so that rows find it; its arena is the configuration's */
    const char *folder;    /* of the file */
};

/* A struct str: a text that may be secret and is not in error texts; it is not copied. An absent
 * one leaves `*out` unchanged. */
doc_member_fn kube_config_read_secret;
/* A char *: a copy of a text; an empty or absent one leaves `*out` unchanged. */
doc_member_fn kube_config_read_text;
/* Resolves a path in the file that is read. */
char *kube_config_path(struct doc_reader *reader, struct str path);

#endif
