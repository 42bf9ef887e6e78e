/* What a run sends, again and again: one inference or one ping, and by which protocol. Protocols
 * are rows of one table; what makes and moves bytes is libsluice, or whatever a row brings along.
 *
 * Thread: a call is made once and then read by all; a connection is used from one thread. */
#ifndef SLUICE_CLI_BENCH_CALL_H
#define SLUICE_CLI_BENCH_CALL_H

#include "base/arena.h"
#include "base/status.h"
#include "cli/bench_settings.h"
#include "sluice/client.h"

struct bench_call;

struct bench_protocol {
    const char *name;
    const char *schemes; /* of URLs, without the colon, each followed by a space */
    /* Asks the server what must be known and fills in the rest of the call, in `arena`. */
    enum status (*prepare)(struct arena *arena, const struct bench_settings *settings,
                           struct bench_call *call, struct error *err);
    /* A connection, which connects when it is first used. Results as those of sluice/client.h. */
    sluice_client_status (*open)(const struct bench_call *call, void **connection,
                                 sluice_client_error *error);
    void (*close)(void *connection);
    sluice_client_status (*start)(void *connection, const struct bench_call *call,
                                  sluice_client_error *error);
    sluice_client_status (*step)(void *connection, sluice_client_error *error);
    void (*wait)(const void *connection, sluice_client_waiting *waiting);
    /* When step has said OK: is the answer one? *n_bytes: of its outputs. */
    sluice_client_status (*take)(void *connection, const struct bench_call *call, uint64_t *n_bytes,
                                 sluice_client_error *error);
};

struct bench_call {
    const struct bench_protocol *protocol;
    const char *url;
    uint64_t timeout_ns;
    bool ping;
    uint64_t batch;
    uint64_t n_bytes; /* of the inputs */
    sluice_infer_request infer;
    sluice_mip_request mip;
    /* For the report; "" where the protocol does not say. */
    const char *server, *server_version, *model_version, *platform;
};

/* The rows. */
extern const struct bench_protocol bench_protocol_v2, bench_protocol_mip;

/* The protocol of a URL. Returns: NULL where there is none. */
const struct bench_protocol *bench_protocol_find(const char *url);
/* Makes the call that the settings ask for. Returns: ST_BAD_CONFIG for what makes no sense; ST_IO,
 * ST_REFUSED and others where the server can't say what its model wants. Owns: in `arena`. */
enum status bench_call_make(struct arena *arena, const struct bench_settings *settings,
                            struct bench_call *out, struct error *err)
    __attribute__((warn_unused_result));
/* Sends it once and waits for the answer. Returns: ST_REFUSED or ST_IO with the message;
 * *latency_ns includes connecting. */
enum status bench_call_try(const struct bench_call *call, uint64_t *latency_ns, struct error *err)
    __attribute__((warn_unused_result));

#endif
