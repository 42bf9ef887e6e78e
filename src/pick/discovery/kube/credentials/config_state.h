/* What a configuration holds. For kube_config*.c, exec.c, auth.c and
 * pick/discovery/kube/client.c only. */
#ifndef SLUICE_PICK_DISCOVERY_KUBE_CREDENTIALS_CONFIG_STATE_H
#define SLUICE_PICK_DISCOVERY_KUBE_CREDENTIALS_CONFIG_STATE_H

#include "core/base/doc/doc.h"
#include "core/os/credential.h"
#include "pick/discovery/kube/credentials/config.h"
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

/* From kubeconfig files. `many`: there may be several paths, with ':' between them; the first of
 * those that name a thing counts, and one that is not there is left out. `context` NULL: the
 * current one. */
enum status kube_config_read_files(struct kube_config *config, const char *paths, bool many,
                                   const char *context, struct error *err)
    __attribute__((warn_unused_result));
/* From the place of a kubeconfig's user in a document; files that it names are in `folder`. */
enum status kube_config_read_user(struct kube_config *config, const struct doc_node *user,
                                  const char *folder, struct error *err)
    __attribute__((warn_unused_result));

/* ---- for both of these ----------------------------------------------------------------------- */

/* The member as text that may be secret: it is in no sentence. Returns: ST_BAD_CONFIG when it is
 * something else; `out` is left alone where there is none. */
enum status kube_config_secret(const struct doc_node *node, const char *key, struct str *out,
                               struct error *err) __attribute__((warn_unused_result));
/* A copy of the member; an empty one is none. */
enum status kube_config_text(const struct doc_node *node, const char *key, char **out,
                             struct error *err) __attribute__((warn_unused_result));
/* The members NAME (a file) and NAME-data (base64), which comes first. */
enum status kube_config_pem(const struct doc_node *node, const char *name, const char *folder,
                            struct credential *out, struct error *err)
    __attribute__((warn_unused_result));
/* A path as whoever wrote a file in `folder` means it. Returns: NULL when out of memory. Owns: the
 * caller. */
char *kube_config_path(const char *folder, struct str path) __attribute__((warn_unused_result));

#endif
