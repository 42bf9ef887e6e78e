/* What a run sends, again and again: one inference or one ping, and by which protocol. Protocols
 * are rows of one table. A request is encoded once, before the load; while it runs a row only moves
 * bytes, so that what is measured is the server.
 *
 * Thread: a call is made once and then read by all; a connection is used from one thread. */
#ifndef SLUICE_PROGRAM_LOADGEN_CALL_H
#define SLUICE_PROGRAM_LOADGEN_CALL_H

#include "client/client.h"
#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/tensor/infer.h"
#include "program/loadgen/settings.h"

struct bench_call;

/* Why a request failed: the reason and its words, and what the server's answer said. */
struct bench_error {
    struct error err;
    int32_t http_status; /* 0: none came */
    int32_t mip_error;   /* -1: none came */
    int32_t grpc_code;   /* 0: none came, or OK */
};

struct bench_protocol {
    const char *name;
    const char *schemes; /* of URLs, without the colon, each followed by a space */
    /* Asks the server what must be known and fills in the rest of the call, in `arena`. Returns:
     * ST_BAD_CONFIG for what makes no sense; ST_IO, ST_REFUSED and others where the server can't
     * say what its model wants. */
    enum status (*prepare)(struct arena *arena, const struct bench_settings *settings,
                           struct bench_call *call, struct error *err);
    /* A connection, which connects when it is first used. */
    enum status (*open)(const struct bench_call *call, void **connection, struct error *err);
    void (*close)(void *connection);
    /* One exchange: begun, then stepped until *done, waiting in between for what `wait` says. When
     * a step returns anything but ST_OK the exchange is over, and another may be begun. */
    enum status (*start)(void *connection, const struct bench_call *call, struct error *err);
    enum status (*step)(void *connection, bool *done, struct error *err);
    void (*wait)(const void *connection, struct client_waiting *waiting);
    /* Of an exchange that is done: did the server do what was asked? *n_bytes: of its answer's body
     * or payload, which is read through only if `whole`. */
    enum status (*take)(void *connection, const struct bench_call *call, bool whole,
                        uint64_t *n_bytes, struct bench_error *failed);
    const struct bench_channel_functions *channel; /* NULL: each exchange has a connection of its
                                                      own */
};

/* Where the exchanges of a thread share connections: what it has of them. One that is attached is a
 * connection as above, but for having no descriptor: whoever has the hub steps it when that says
 * that it is over. */
struct bench_channel_functions {
    enum status (*open)(const struct bench_call *call, unsigned n_connections, void **channel,
                        struct error *err);
    void (*close)(void *channel); /* after those attached */
    enum status (*attach)(void *channel, const struct bench_call *call, void *user,
                          void **connection, struct error *err);
    void (*wait)(const void *channel, struct client_waiting *waiting);
    /* Goes on, as far as that is possible without waiting. */
    void (*run)(void *channel);
    /* Returns: the cookie of one whose exchange is over since it was last asked for; NULL: none. */
    void *(*next)(void *channel);
};

struct bench_call {
    const struct bench_protocol *protocol;
    const struct bench_settings *settings;
    const char *url;
    const struct tls_client *tls; /* NULL: without */
    uint64_t timeout_ns;
    bool ping;
    uint64_t batch;
    uint64_t n_bytes;            /* of the request's body or payload */
    struct http_message message; /* over gRPC its pieces are those of the call's message */
    struct mip_infer mip;
    uint32_t mip_bytes;
    /* For the report; "" and none where the protocol does not say. */
    const struct tensor *inputs;
    size_t n_inputs;
    const char *server, *server_version, *model_version, *platform;
};

/* The rows. */
extern const struct bench_protocol bench_protocol_v2, bench_protocol_grpc, bench_protocol_mip;

/* The protocol of a URL. Returns: NULL where there is none. */
const struct bench_protocol *bench_protocol_find(const char *url);
/* Makes the call that the settings ask for; `tls` is NULL for a URL without. Returns: as `prepare`.
 * Owns: in `arena`; `tls` outlives the call. */
enum status bench_call_init(struct arena *arena, const struct bench_settings *settings,
                            const struct tls_client *tls, struct bench_call *out, struct error *err)
    __attribute__((warn_unused_result));
/* Sends it once, waits for the answer, and reads through it. *latency_ns includes connecting.
 * Returns: ST_REFUSED, ST_BAD_ANSWER, ST_IO and others with the message. */
enum status bench_call_send_once(const struct bench_call *call, uint64_t *latency_ns,
                                 struct error *err) __attribute__((warn_unused_result));

/* ---- between the rows: connections that are clients of ours ---------------------------------- */

enum { BENCH_MAX_ANSWER_BYTES = 1 << 30 };
enum status bench_client_open(const struct bench_call *call, void **connection, struct error *err);
void bench_client_close(void *connection);
enum status bench_client_step(void *connection, bool *done, struct error *err);
void bench_client_wait(const void *connection, struct client_waiting *waiting);

/* ---- between the rows: inferences by name ---------------------------------------------------- */

/* The arrays of an inference: inputs, and the outputs asked for. */
enum status bench_request_init(struct arena *arena, const struct bench_call *call,
                               struct infer_request *out, struct error *err)
    __attribute__((warn_unused_result));
/* Makes the inputs that the model takes, and keeps what the report says of it. */
enum status bench_call_set_model(struct arena *arena, const struct model_spec *model,
                                 struct bench_call *call, struct error *err)
    __attribute__((warn_unused_result));
/* Keeps a text for the report. */
enum status bench_text_dup(struct arena *arena, struct str text, const char **out,
                           struct error *err) __attribute__((warn_unused_result));

#endif
