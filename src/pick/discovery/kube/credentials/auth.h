/* The current credentials for an API server, from files and from an exec program. For
 * pick/discovery/kube/client.c.
 *
 * Thread: the worker's. */
#ifndef SLUICE_PICK_DISCOVERY_KUBE_CREDENTIALS_AUTH_H
#define SLUICE_PICK_DISCOVERY_KUBE_CREDENTIALS_AUTH_H

#include "core/os/child.h"
#include "pick/discovery/kube/credentials/config.h"

struct kube_auth {
    struct worker *worker;
    struct kube_config *config;
    /* A program has ended; `err` NULL: successfully. */
    void (*on_credential)(struct kube_auth *login, const struct error *err);
    struct kube_credential credential;
    unsigned generation; /* of the program's credential; 0: none */
    bool refused;        /* the server rejected it */
    bool just_issued; /* it was issued just now: waiting requests use it even if it has expired */
    struct child *child; /* the running program */
    struct error error;  /* of the last run; the program does not run before `again_ns` */
    uint64_t again_ns;
    void (*stopped)(void *user);
    void *user;
};

/* Credentials; valid until the next call. */
struct kube_identity {
    const char *token; /* NULL: none */
    struct str ca, cert, key;
    unsigned generation;
};

/* Gets all current credentials. Returns: ST_NOT_READY: the program is running, and on_credential
 * will be called; ST_IO, ST_NO_MEMORY and the program's errors. */
enum status kube_auth_get(struct kube_auth *login, struct kube_identity *out,
                          struct error *err) SLUICE_MUST_USE;
/* The server rejected the credentials of this generation. */
void kube_auth_reject(struct kube_auth *login, unsigned generation);
/* Ends a running program; calls `stopped` when it has ended, perhaps within the call. */
void kube_auth_stop(struct kube_auth *login, void (*stopped)(void *user), void *user);
/* After `stopped`. */
void kube_auth_fini(struct kube_auth *login);

#endif
