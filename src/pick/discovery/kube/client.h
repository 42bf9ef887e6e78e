/* A client of one API server: asks it something, as the configuration says who we are, any number
 * at once. Tokens and certificates that stand in files, or come from a program, are as they are at
 * the time of each ask; an answer of 401 makes a program run again for the next one. It tries
 * nothing twice: whoever asks knows when.
 *
 * Thread: the worker's, for everything. */
#ifndef SLUICE_PICK_DISCOVERY_KUBE_CLIENT_H
#define SLUICE_PICK_DISCOVERY_KUBE_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/doc/doc.h"
#include "core/event/worker.h"
#include "pick/discovery/kube/credentials/config.h"

struct kube_client;
struct kube_call;

/* Takes the config, also after an error. Returns: ST_NO_MEMORY. Owns: *out until
 * kube_client_free. */
enum status kube_client_new(struct worker *worker, struct kube_config *config,
                            struct kube_client **out, struct error *err)
    __attribute__((warn_unused_result));
const struct kube_config *kube_client_config(const struct kube_client *client);
/* What is under way ends with ST_CANCELLED; `done` when nothing is left on the loop, perhaps from
 * within. Not from within a callback. */
void kube_client_stop(struct kube_client *client, void (*done)(void *user), void *user);
/* After `done`, or of one that never asked. NULL is allowed. */
void kube_client_free(struct kube_client *client);

/* A collection of objects. */
struct kube_resource {
    const char *group; /* "": the core's */
    const char *version;
    const char *name;       /* of the resource: "pods" */
    const char *name_space; /* NULL: of all of them, or the objects belong to none */
};

/* Appends "/apis/GROUP/VERSION/namespaces/NS/NAME", with "/OBJECT" and "/SUB" (NULL: without). */
void kube_path_print(struct buf *out, const struct kube_resource *resource, const char *object,
                     const char *sub);
/* Appends text as a value in a query. */
void kube_query_print(struct buf *out, struct str text);

/* What came of it; valid until the callback returns. */
struct kube_response {
    /* ST_OK: a status of 2xx. Else a sentence, with what the server says where it says something:
     * ST_IO, ST_DEADLINE_EXCEEDED, ST_CANCELLED (no answer); ST_BAD_CONFIG (what we are to show
     * can't be); ST_BAD_ANSWER, ST_BODY_TOO_LARGE; ST_REFUSED (another status). */
    struct error error;
    int status;              /* of HTTP; 0: none came */
    uint64_t retry_after_ns; /* 0: it does not say */
    struct doc_node object;  /* the body as JSON; absent (val NULL): there is none */
};

/* Read during kube_call_start only. */
struct kube_request {
    const char *method;       /* NULL: GET */
    struct str path;          /* with the query: "/api/v1/pods?limit=1" */
    struct str body;          /* JSON; ptr NULL: none */
    const char *content_type; /* "application/merge-patch+json"; NULL: application/json */
    uint64_t timeout_ns;      /* 0: 30 s */
    size_t max_bytes;         /* of the answer; 0: 64 MiB */
    /* Gets the body of an answer of 2xx as it comes, of any size, which is then not kept. NULL: it
     * is in what `done` gets. */
    void (*piece)(void *user, struct str bytes);
    /* Once, never from within kube_call_start. */
    void (*done)(void *user, const struct kube_response *answer);
    void *user;
};

/* Returns: ST_NO_MEMORY. Owns: *out (may be NULL) until the callback or kube_call_cancel. */
enum status kube_call_start(struct kube_client *client, const struct kube_request *ask,
                            struct kube_call **out, struct error *err)
    __attribute__((warn_unused_result));
/* The status of its answer; 0: nothing of one has come. Not once `done` has come. */
int kube_call_status(const struct kube_call *call);
/* Gives it up: nothing is called any more. Not once `done` has come; from within `piece`, too. */
void kube_call_cancel(struct kube_call *call);

#endif
