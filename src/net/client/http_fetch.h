/* Things fetched, and sent, over HTTP/1.1, any number at once: health pages, metrics, traces, the
 * objects of an API. Each has a limit of time and one of the body's size. Connections are kept for
 * the next time. It follows no redirection, uses no proxy, and refuses to know what a body means.
 *
 * Thread: the fetcher's worker, for everything. */
#ifndef SLUICE_NET_CLIENT_HTTP_FETCH_H
#define SLUICE_NET_CLIENT_HTTP_FETCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/base/str.h"
#include "core/event/worker.h"

struct http_fetcher;
struct http_fetch;

/* For https. Paths of PEM files, which are read when a connection is made (those to trust are
 * remembered for a day); NULL: none. The texts stand for files, which are not looked at then. */
struct http_fetch_tls {
    const char *ca;   /* whom to trust; without: whom the system trusts */
    const char *cert; /* shown to a server that asks for one */
    const char *key;  /* without: in the same file */
    bool insecure;    /* trusts whoever answers */
    struct str ca_pem, cert_pem, key_pem;
    const char *name; /* that the server's certificate has; NULL: the host of the URL */
};

/* What came of it. The texts are valid until the callback returns. */
struct http_fetch_result {
    /* ST_OK: an answer, whatever its status. Else a sentence without the URL: ST_IO (no connection,
     * or lost), ST_DEADLINE_EXCEEDED, ST_BODY_TOO_LARGE, ST_BAD_ANSWER, ST_CANCELLED, ST_BAD_CONFIG
     * (no URL), ST_NO_MEMORY. */
    struct error error;
    bool refused; /* ST_IO: nothing listens there */
    int status;   /* 0: none came; may be there with an error too */
    /* Retry-After, of a date too, in seconds from now; 0: there is none, or it is no time. */
    uint64_t retry_after_s;
    struct str content_type;
    struct str body;
};

typedef void http_fetch_done_cb(void *user, const struct http_fetch_result *fetched);

/* Read during http_fetch_start only. */
struct http_fetch_request {
    const char *url;             /* "http://10.0.0.1:8000/metrics" */
    const char *method;          /* GET, POST, PUT, PATCH or DELETE; NULL: GET */
    uint64_t timeout_ns;         /* from now to the last byte; at least 1 ms */
    uint64_t connect_timeout_ns; /* to a connection; 0: as long as all of it may take */
    /* What is sent, with Content-Length, as `content_type` says (NULL: nothing does). A body of no
     * bytes is one with a pointer. */
    struct str body;
    const char *content_type;
    const char *const *fields; /* besides: "Accept: application/json" */
    size_t n_fields;
    size_t max_body_size;             /* 0: no body is wanted, and one of any size is no error */
    const char *bearer;               /* the token that is shown; NULL: none */
    const struct http_fetch_tls *tls; /* for https; NULL: the fetcher's */
    bool own_connection;              /* on a connection of its own, which is closed
                                                   afterwards */
    /* A new connection is asked, while it is silent, whether the other side is still there; one
     * that has gone without a word is an ST_IO about so many seconds later. 0: nobody asks. */
    unsigned keepalive_s;
    /* Gets the body as it comes, which is then not kept, and of which there may be an end too
     * early; must not cancel. NULL: it is in what `done` gets. */
    void (*piece)(void *user, struct str bytes);
    http_fetch_done_cb *done; /* once, never from within http_fetch_start */
    void *user;
};

/* The texts of `tls` (NULL: the defaults) must outlive the fetcher. `most_kept`: idle connections.
 * Returns: ST_NO_MEMORY. Owns: *out until http_fetcher_free. */
enum status http_fetcher_new(struct worker *worker, const struct http_fetch_tls *tls,
                             unsigned max_idle, struct http_fetcher **out, struct error *err)
    __attribute__((warn_unused_result));
/* From now on so many idle connections are kept. */
void http_fetcher_set_max_idle(struct http_fetcher *fetcher, unsigned max_idle);
/* Ends what is under way with ST_CANCELLED, then closes the connections; `done` when nothing is
 * left, perhaps from within. Nothing is begun afterwards. Not from within a callback. */
void http_fetcher_stop(struct http_fetcher *fetcher, void (*done)(void *user), void *user);
/* After `done`. NULL is allowed. */
void http_fetcher_free(struct http_fetcher *fetcher);

/* Returns: ST_NO_MEMORY, ST_BAD_CONFIG (a control character in what would be a header). Owns: *out
 * (may be NULL) until the callback or http_fetch_cancel. */
enum status http_fetch_start(struct http_fetcher *fetcher, const struct http_fetch_request *request,
                             struct http_fetch **out, struct error *err)
    __attribute__((warn_unused_result));
/* Until `done` has come: the status of the answer; 0: nothing of one has come. */
int http_fetch_status(const struct http_fetch *fetch);
/* Gives it up; the callback does not come. Not once it has come. */
void http_fetch_cancel(struct http_fetch *fetch);

#endif
