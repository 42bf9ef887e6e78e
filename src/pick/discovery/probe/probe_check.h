/* A check that is under way, and the ways to make one. For prober.c and probe_*.c only. */
#ifndef SLUICE_PICK_DISCOVERY_PROBE_PROBE_CHECK_H
#define SLUICE_PICK_DISCOVERY_PROBE_PROBE_CHECK_H

#include "net/client/dial.h"
#include "net/client/grpc/grpc_client.h"
#include "net/client/http_fetch.h"
#include "pick/discovery/probe/probe.h"
#include "pick/discovery/probe/prober.h"

enum probe_result {
    PROBE_OK,
    PROBE_REFUSED, /* nothing listens there */
    PROBE_TIMEOUT,
    PROBE_STATUS, /* it answered that it is not ready, or something that is no such answer */
    PROBE_BROKEN, /* no connection, or it was lost */
};

struct probe_check;

struct probe_method {
    /* Begins it. Returns: why it can't be; probe_check_finish does not follow then. */
    enum status (*begin)(struct probe_check *check, const struct pool_health *health,
                         struct error *err);
    /* Gives it up; probe_check_finish follows, perhaps from within. */
    void (*cancel)(struct probe_check *check);
};

extern const struct probe_method PROBE_HTTP, PROBE_GRPC, PROBE_TCP;

struct probe_check {
    struct prober *prober;
    struct probe *probe;
    struct probe_check *next, *prev; /* of the prober's */
    const struct probe_method *method;
    struct worker *worker;
    struct http_fetcher *fetcher; /* for HTTP */
    bool keep_alive;              /* its connection shall be kept, for HTTP */
    bool at_request_port;         /* that requests go to */
    bool was_refused;             /* when it began */
    uint64_t timeout_ns;
    char target[ENDPOINT_TEXT_BYTES]; /* "IP:PORT" */
    union {
        struct http_fetch *fetch;
        struct dial *dial;
        struct grpc_client *client;
    } io;
    struct {
        struct grpc_client_call *call; /* NULL: it has ended */
        enum probe_result result;      /* known by then */
        struct error why;
        int state; /* HealthCheckResponse.status; below 0: no answer */
    } grpc;
};

/* It has ended, `why` with another result than PROBE_OK. The check is gone. */
void probe_check_finish(struct probe_check *check, enum probe_result result, const char *why);
/* The same, with an error of the network. */
void probe_check_fail(struct probe_check *check, const struct error *err, bool refused);
enum probe_result probe_result_of(const struct error *err, bool refused);

#endif
