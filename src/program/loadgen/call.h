/* The request of a run, one inference or one ping, which is sent again and again over one of the
 * protocols in a table. It is encoded once, before the load; during the load only bytes are
 * moved, so that the server is measured and not the generator.
 *
 * Thread: a call is made once and read by all threads after that; a connection is used by one
 * thread. */
#ifndef SLUICE_PROGRAM_LOADGEN_CALL_H
#define SLUICE_PROGRAM_LOADGEN_CALL_H

#include "client/connection/client.h"
#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/tensor/infer.h"
#include "program/loadgen/settings.h"

struct bench_call;

/* Why a request failed: the reason, and the codes in the server's answer. */
struct bench_error {
    struct error err;
    int32_t http_status; /* 0: no answer */
    int32_t mip_error;   /* -1: no answer */
    int32_t grpc_code;   /* 0: no answer, or OK */
};

struct bench_protocol {
    const char *name;
    const char *schemes; /* of URLs, without the colon, each followed by a space */
    /* Queries the server for metadata and fills in the rest of the call, in `arena`. Returns:
     * ST_BAD_CONFIG for invalid settings; ST_IO, ST_REFUSED and others if the metadata is not
     * available. */
    enum status (*prepare)(struct arena *arena, const struct bench_settings *settings,
                           struct bench_call *call, struct error *err);
    /* Makes a connection, which connects on first use. */
    enum status (*open)(const struct bench_call *call, void **connection, struct error *err);
    void (*close)(void *connection);
    /* One exchange: started, then stepped until *done; between steps the caller waits as `wait`
     * tells. After any status but ST_OK the exchange has failed, and another may be started. */
    enum status (*start)(void *connection, const struct bench_call *call, struct error *err);
    enum status (*step)(void *connection, bool *done, struct error *err);
    void (*wait)(const void *connection, struct client_waiting *waiting);
    /* Checks the answer of a completed exchange. *n_bytes: the size of the answer's body or
     * payload. The body is decoded only if `whole`. */
    enum status (*take)(void *connection, const struct bench_call *call, bool whole,
                        uint64_t *n_bytes, struct bench_error *failed);
    const struct bench_channel_functions *channel; /* NULL: each exchange has its own connection */
};

/* Shared connections: a channel has the connections of one thread. An attached connection has no
 * descriptor of its own; its user steps it when the channel reports its exchange as done. */
struct bench_channel_functions {
    enum status (*open)(const struct bench_call *call, unsigned n_connections, void **channel,
                        struct error *err);
    void (*close)(void *channel); /* after its attached connections */
    enum status (*attach)(void *channel, const struct bench_call *call, void *user,
                          void **connection, struct error *err);
    void (*wait)(const void *channel, struct client_waiting *waiting);
    /* Proceeds without blocking. */
    void (*run)(void *channel);
    /* Sends the requests that were started since. */
    void (*flush)(void *channel);
    /* Returns: the `user` of an attached connection whose exchange is done and was not reported
     * yet; NULL: none. */
    void *(*next)(void *channel);
};

struct bench_call {
    const struct bench_protocol *protocol;
    const struct bench_settings *settings;
    const char *url;
    const struct client_tls *tls; /* NULL: no TLS */
    uint64_t timeout_ns;
    bool ping;
    uint64_t batch;
    uint64_t n_bytes;            /* size of the request's body or payload */
    struct http_message message; /* over gRPC the pieces of the message */
    struct mip_infer mip;
    uint32_t mip_bytes;
    /* For the report; "" and none if the protocol does not provide them. */
    const struct tensor *inputs;
    size_t n_inputs;
    const char *server, *server_version, *model_version, *platform;
};

/* The rows. */
extern const struct bench_protocol bench_protocol_v2, bench_protocol_grpc, bench_protocol_mip;

/* Returns: the protocol of a URL; NULL if unknown. */
const struct bench_protocol *bench_protocol_find(const char *url);
/* Makes the call from the settings; `tls` is NULL for a URL without TLS. Returns: as `prepare`.
 * Owns: in `arena`; `tls` must outlive the call. */
enum status bench_call_init(struct arena *arena, const struct bench_settings *settings,
                            const struct client_tls *tls, struct bench_call *out,
                            struct error *err) SLUICE_MUST_USE;
/* Sends the request once, waits for the answer and decodes it. *latency_ns includes connecting.
 * Returns: ST_REFUSED, ST_BAD_ANSWER, ST_IO and others with a text. */
enum status bench_call_send_once(const struct bench_call *call, uint64_t *latency_ns,
                                 struct error *err) SLUICE_MUST_USE;

/* ---- shared by protocols: connections of libsluice's client ---------------------------------- */

enum { BENCH_MAX_ANSWER_BYTES = 1 << 30 };
enum status bench_client_open(const struct bench_call *call, void **connection, struct error *err);
void bench_client_close(void *connection);
enum status bench_client_step(void *connection, bool *done, struct error *err);
void bench_client_wait(const void *connection, struct client_waiting *waiting);

/* ---- shared by protocols: inferences by name ------------------------------------------------- */

/* The arrays of an inference: inputs, and requested outputs. */
void bench_request_init(struct arena *arena, const struct bench_call *call,
                        struct infer_request *out);
/* Makes the model's inputs, and stores the model's version and platform for the report. */
enum status bench_call_set_model(struct arena *arena, const struct model_spec *model,
                                 struct bench_call *call, struct error *err) SLUICE_MUST_USE;

#endif
