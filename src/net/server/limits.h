/* The limits that the servers of all protocols have in common. */
#ifndef SLUICE_NET_SERVER_LIMITS_H
#define SLUICE_NET_SERVER_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/random.h"

/* Each is a setting with a default (program/model_server/settings.def); times in nanoseconds. The
 * comments name the HTTP status and the MIP code of a request over the limit, and the place that
 * enforces it; the time-outs are those of net/server/server_worker.c, which calls on_timeout of the
 * protocol. gRPC has limits of its own (grpc/server.h). */
struct net_limits {
    /* HTTP: request line and fields together, 431. codec/http1/request.c:http1_request_step */
    size_t max_header_size;
    /* 413: net/transport/body.c. MEMORY: mip/server.c:check_size. */
    uint64_t max_body_size;
    /* Of the arena of one request: 503, MEMORY; 0: no limit. net/server/call.c:net_call_new */
    uint64_t request_memory;
    uint64_t idle_timeout_ns; /* between requests: close */
    /* A connection that is silent for so long is probed, and closed when no answer comes within
     * about the same time again. net/server/listener.c:keepalive_set,
     * net/server/conn.c:net_conn_probe */
    uint64_t keepalive_time_ns;
    /* For that answer; 0: keepalive_time_ns. */
    uint64_t keepalive_timeout_ns;
    /* A connection that is so old takes no new requests, as if it had been idle too long; 0: no
     * limit. After the grace it is closed with its requests; 0: never.
     * net/server/conn.c:on_age */
    uint64_t max_age_ns, age_grace_ns;
    uint64_t header_timeout_ns; /* first byte to end of head: 408; MIP: close */
    uint64_t body_timeout_ns;   /* between two parts of a body: 408, INTERNAL and close */
    /* Bytes/s that a body must reach over each body_timeout_ns, in the same way.
     * net/server/call.c:net_call_body_is_too_slow */
    uint64_t min_body_rate;
    uint64_t write_timeout_ns; /* of a response that is taken too slowly: close */
    /* Bytes/s a client must take of a response over write_timeout_ns; 0: any byte is enough.
     * net/server/conn.c:write_timed_out */
    uint64_t min_write_rate;
    /* Of the responses of a connection, from their request on; 0: no limit.
     * net/transport/memory_account.c:account_has_space */
    uint64_t max_unsent_size;
    /* Of a refused body: bytes read and dropped before closing.
     * net/server/conn_read.c:net_conn_discard */
    uint64_t discard_size;
    bool reuse_port; /* other processes may listen on the same ports: SO_REUSEPORT */
};

/* Returns: `ns`, a tenth of it less to a tenth more, as gRPC's servers have it for
 * --grpc-max-connection-age. */
static inline uint64_t net_age_with_jitter(struct prng *prng, uint64_t ns) {
    return ns - ns / 10 + prng_share(prng, ns / 5);
}

#endif
