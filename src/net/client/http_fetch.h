/* HTTP/1.1 requests, any number in parallel: health pages, metrics, traces, the objects of an API.
 * Each has a timeout and a limit of the response body. Connections are reused; redirections are not
 * followed and proxies not used.
 *
 * Back pressure: a response is read as fast as it comes, up to max_body_size; `piece` gets each
 * part synchronously, so the peer waits only while the callback runs.
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

/* TLS of https URLs. Paths are PEM files, read when a connection is made (the CA file is cached for
 * a day); NULL: none. The *_pem texts replace the files. */
struct http_fetch_tls {
    const char *ca;   /* trusted CAs; NULL: the system's */
    const char *cert; /* client certificate */
    const char *key;  /* its key; NULL: in the same file */
    bool insecure;    /* does not verify the server's certificate */
    struct str ca_pem, cert_pem, key_pem;
    const char *name; /* name the server's certificate must have; NULL: the URL's host */
};

/* Result of a fetch. The texts are valid until the callback returns. */
struct http_fetch_result {
    /* ST_OK: a response, whatever its status. Else a text without the URL: ST_IO (no connection, or
     * lost), ST_DEADLINE_EXCEEDED, ST_BODY_TOO_LARGE, ST_BAD_ANSWER, ST_CANCELLED, ST_BAD_CONFIG
     * (invalid URL), ST_NO_MEMORY. */
    struct error error;
    bool refused; /* ST_IO: connection refused */
    int status;   /* 0: no response; may be set with an error too */
    /* Retry-After (a date too) in seconds from now; 0: missing or invalid. */
    uint64_t retry_after_s;
    struct str content_type;
    struct str body;
};

typedef void http_fetch_done_cb(void *user, const struct http_fetch_result *fetched);

/* Read during http_fetch_start only. */
struct http_fetch_request {
    const char *url;             /* "http://10.0.0.1:8000/metrics" */
    const char *unix_socket;     /* connects to this path in place of the URL's host; NULL: TCP */
    const char *method;          /* GET, POST, PUT, PATCH or DELETE; NULL: GET */
    uint64_t timeout_ns;         /* from now to the last byte; at least 1 ms */
    uint64_t connect_timeout_ns; /* until connected; 0: only timeout_ns applies */
    /* Request body, sent with Content-Length and `content_type` (NULL: none). ptr NULL: no body; a
     * body may be empty. */
    struct str body;
    const char *content_type;
    const char *const *fields; /* additional fields: "Accept: application/json" */
    size_t n_fields;
    /* Of the response; 0: the body is dropped, whatever its size. */
    size_t max_body_size;
    const char *bearer;               /* bearer token; NULL: none */
    const struct http_fetch_tls *tls; /* NULL: the fetcher's */
    bool own_connection;              /* uses a new connection and closes it afterwards */
    /* Sends TCP keepalive probes on a new connection; a lost peer is an ST_IO after about this many
     * seconds. 0: off. */
    unsigned keepalive_s;
    /* Gets the response body in parts, which are not buffered then; the body may be incomplete if
     * the fetch fails. Must not cancel the fetch. NULL: `done` gets the whole body. */
    void (*piece)(void *user, struct str bytes);
    http_fetch_done_cb *done; /* once, never from within http_fetch_start */
    void *user;
};

/* Creates a fetcher. The texts of `tls` (NULL: defaults) must outlive it. `max_idle`: maximum of
 * idle connections. Returns: ST_NO_MEMORY. Owns: *out until http_fetcher_free. */
enum status http_fetcher_new(struct worker *worker, const struct http_fetch_tls *tls,
                             unsigned max_idle, struct http_fetcher **out,
                             struct error *err) SLUICE_MUST_USE;
/* Sets the maximum of idle connections. */
void http_fetcher_set_max_idle(struct http_fetcher *fetcher, unsigned max_idle);
/* Ends all fetches with ST_CANCELLED, then closes the connections; calls `done` when no handle is
 * open, possibly before it returns. No fetch may start afterwards. Must not be called within a
 * callback. */
void http_fetcher_stop(struct http_fetcher *fetcher, void (*done)(void *user), void *user);
/* After `done`. NULL is allowed. */
void http_fetcher_free(struct http_fetcher *fetcher);

/* Starts a fetch; request->done is called once, later. Returns: ST_NO_MEMORY, ST_BAD_CONFIG (a
 * control character in a header field). Owns: *out (may be NULL) until the callback or
 * http_fetch_cancel. */
enum status http_fetch_start(struct http_fetcher *fetcher, const struct http_fetch_request *request,
                             struct http_fetch **out, struct error *err) SLUICE_MUST_USE;
/* Returns: the response status, before `done`; 0: no response yet. */
int http_fetch_status(const struct http_fetch *fetch);
/* Cancels the fetch; the callback is not called. Must not be called after it. */
void http_fetch_cancel(struct http_fetch *fetch);

#endif
