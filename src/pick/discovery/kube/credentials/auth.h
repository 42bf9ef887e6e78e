/* Who we are to an API server, at the moment: what its files hold now, and what a program has said,
 * which is run when that is needed. For pick/discovery/kube/client.c only.
 *
 * Thread: the worker's, for everything. */
#ifndef SLUICE_PICK_DISCOVERY_KUBE_CREDENTIALS_AUTH_H
#define SLUICE_PICK_DISCOVERY_KUBE_CREDENTIALS_AUTH_H

#include "core/os/child.h"
#include "pick/discovery/kube/credentials/config.h"

struct kube_auth {
    struct worker *worker;
    struct kube_config *config;
    /* A program has ended; `err` NULL: well. */
    void (*on_credential)(struct kube_auth *login, const struct error *err);
    struct kube_credential credential;
    unsigned generation; /* of the credential; 0: there is none */
    bool refused;        /* the server would not have it */
    bool just_issued;    /* it was said just now: those who waited have it, even if it is
                                  over */
    struct child *child; /* runs */
    struct error error;  /* of the last run, until `again_ns`: it is not run before */
    uint64_t again_ns;
    void (*stopped)(void *user);
    void *user;
};

/* What is shown; valid until the next call. */
struct kube_identity {
    const char *token; /* NULL: none */
    struct str ca, cert, key;
    unsigned generation;
};

/* All that we are known by, as it is now. Returns: ST_NOT_READY: a program runs, and `known` will
 * come; ST_IO, ST_NO_MEMORY and what a program can't do. */
enum status kube_auth_get(struct kube_auth *login, struct kube_identity *out, struct error *err)
    __attribute__((warn_unused_result));
/* The server did not want what was shown. */
void kube_auth_reject(struct kube_auth *login, unsigned generation);
/* Ends a program that runs; `gone` when nothing is left, perhaps from within. */
void kube_auth_stop(struct kube_auth *login, void (*stopped)(void *user), void *user);
/* After `gone`. */
void kube_auth_fini(struct kube_auth *login);

#endif
