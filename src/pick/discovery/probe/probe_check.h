/* A running check of an endpoint, and the methods of checking. For prober.c and probe_methods.c. */
#ifndef SLUICE_PICK_DISCOVERY_PROBE_PROBE_CHECK_H
#define SLUICE_PICK_DISCOVERY_PROBE_PROBE_CHECK_H

#include <sys/queue.h>

#include "net/client/dial.h"
#include "net/client/grpc/grpc_client.h"
#include "net/client/http_fetch.h"
#include "pick/discovery/probe/probe.h"
#include "pick/discovery/probe/prober.h"

enum probe_result {
    PROBE_OK,
    PROBE_REFUSED, /* connection refused */
    PROBE_TIMEOUT,
    PROBE_STATUS, /* not ready, or an invalid response */
    PROBE_BROKEN, /* no connection, or it was lost */
    PROBE_LOCAL,  /* this process lacks what a connection takes, or stood still: says nothing of the
                     endpoint */
};

struct probe_check;

struct probe_method {
    /* Starts the check. Returns: an error; probe_check_finish is not called then. */
    enum status (*begin)(struct probe_check *check, const struct pool_health *health,
                         struct error *err);
    /* Cancels the check; calls probe_check_finish, perhaps within the call. */
    void (*cancel)(struct probe_check *check);
};

extern const struct probe_method PROBE_HTTP, PROBE_GRPC, PROBE_TCP;

struct probe_check {
    struct prober *prober;
    struct probe *probe;
    LIST_ENTRY(probe_check) link; /* in prober->running */
    const struct probe_method *method;
    struct worker *worker;
    struct http_fetcher *fetcher; /* for HTTP */
    bool keep_alive;              /* for HTTP: keep the connection */
    bool at_request_port;         /* the checked port is the one that requests go to */
    bool was_refused;             /* when the check began */
    uint64_t timeout_ns, begun_ns;
    char target[ENDPOINT_TEXT_BYTES]; /* "IP:PORT" */
    union {
        struct http_fetch *fetch;
        struct dial *dial;
        struct grpc_client *client;
    } io;
    struct {
        struct grpc_client_call *call; /* NULL: it has ended */
        enum probe_result result;      /* once it has ended */
        struct error why;
        int state; /* HealthCheckResponse.status; below 0: no response */
    } grpc;
};

/* Ends and frees the check. `why` is required unless the result is PROBE_OK. */
void probe_check_finish(struct probe_check *check, enum probe_result result, const char *why);
/* Ends the check with a network error. */
void probe_check_fail(struct probe_check *check, const struct error *err, bool refused);
enum probe_result probe_result_of(const struct error *err, bool refused);

#endif
