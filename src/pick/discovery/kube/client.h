/* A client of one API server. Any number of requests run at the same time, with the credentials of
 * the configuration. Tokens and certificates from files or programs are read anew for each request;
 * after a 401 the program runs again for the next one. The client does not retry: its callers do.
 *
 * Thread: the worker's. */
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
                            struct kube_client **out, struct error *err) SLUICE_MUST_USE;
/* Running requests end with ST_CANCELLED; calls `done` when nothing is left on the loop, perhaps
 * within the call. Not to be called within a callback. */
void kube_client_stop(struct kube_client *client, void (*done)(void *user), void *user);
/* After `done`, or if nothing was requested. NULL is allowed. */
void kube_client_free(struct kube_client *client);

/* A collection of objects. */
struct kube_resource {
    const char *group; /* "": the core group */
    const char *version;
    const char *name;       /* the resource: "pods" */
    const char *name_space; /* NULL: all namespaces, or the resource has none */
};

/* Appends "/apis/GROUP/VERSION/namespaces/NS/NAME", with "/OBJECT" and "/SUB" (NULL: without). */
void kube_path_print(struct buf *out, const struct kube_resource *resource, const char *object,
                     const char *sub);
/* Appends text as a value in a query, percent-encoded. */
void kube_query_print(struct buf *out, struct str text);

/* A response; valid until the callback returns. */
struct kube_response {
    /* ST_OK: a status of 2xx. Otherwise an error text, with the server's message if it sent one:
     * ST_IO, ST_DEADLINE_EXCEEDED, ST_CANCELLED (no response); ST_BAD_CONFIG (credentials can't be
     * had); ST_BAD_ANSWER, ST_BODY_TOO_LARGE; ST_REFUSED (another status). */
    struct error error;
    int status;              /* of HTTP; 0: no response */
    uint64_t retry_after_ns; /* 0: none given */
    struct doc_node object;  /* the body as JSON; val NULL: none */
};

/* Borrowed during kube_call_start only. */
struct kube_request {
    const char *method;       /* NULL: GET */
    struct str path;          /* with the query: "/api/v1/pods?limit=1" */
    struct str body;          /* JSON; ptr NULL: none */
    const char *content_type; /* "application/merge-patch+json"; NULL: application/json */
    uint64_t timeout_ns;      /* 0: 30 s */
    size_t max_bytes;         /* of the response body; 0: 64 MiB */
    /* Called with each piece of the body of a 2xx response, of any size; it is not buffered. The
     * caller must keep up: there is no back pressure. NULL: `done` gets the whole body. */
    void (*piece)(void *user, struct str bytes);
    /* Called once, never within kube_call_start. */
    void (*done)(void *user, const struct kube_response *answer);
    void *user;
};

/* Returns: ST_NO_MEMORY. Owns: *out (may be NULL) until `done` or kube_call_cancel. */
enum status kube_call_start(struct kube_client *client, const struct kube_request *ask,
                            struct kube_call **out, struct error *err) SLUICE_MUST_USE;
/* The status of the response; 0: none yet. Not to be called after `done`. */
int kube_call_status(const struct kube_call *call);
/* Cancels the call: no callback follows. Not to be called after `done`; may be called within
 * `piece`. */
void kube_call_cancel(struct kube_call *call);

#endif
