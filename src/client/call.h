/* A public call of any kind, from start to results. The functions in api*.c prepare calls, loop.c
 * runs them on the client's connections (HTTP and MIP: lanes.c, gRPC: channel.c), results.c reads
 * them; a blocking function is start and wait. */
#ifndef SLUICE_CLIENT_CALL_H
#define SLUICE_CLIENT_CALL_H

#include <sys/queue.h>

#include "client/connection/client.h"
#include "client/convert.h"
#include "client/mip_convert.h"
#include "client/retry.h"
#include "client/v2_grpc.h"
#include "core/event/timer_heap.h"
#include "net/client/grpc_session/call.h"
#include "sluice/client.h"

/* A socket in the epoll set of a client. */
struct client_watch {
    int fd; /* in the set; -1: none */
    uint64_t n_sockets;
    uint32_t events;
};

/* What a call answers; the member of `result` with the same name is valid when it is done. */
enum client_result {
    CLIENT_RESULT_NONE,
    CLIENT_RESULT_YES,
    CLIENT_RESULT_SERVER,
    CLIENT_RESULT_MODEL,
    CLIENT_RESULT_ANSWER,
    CLIENT_RESULT_MIP,
    CLIENT_RESULT_TEXT,
};

struct client_call_kind {
    enum client_result result;
    /* Reads the answer of the completed exchange into call->result. */
    enum status (*finish)(sluice_call *call, struct error *err);
    /* The same over gRPC, from a message; ptr NULL: an error answer, if `takes_errors`. */
    enum status (*finish_grpc)(sluice_call *call, struct str message, struct error *err);
    bool takes_errors; /* an error answer is one, too */
    /* Reads one of several answers, a message or an event, into call->stream; NULL: it has one. */
    enum status (*next)(sluice_call *call, struct str answer, struct error *err);
    bool sends; /* the caller sends requests while it runs */
    /* gRPC: only the message is read, as it is: header fields are not kept for it, and its tensors
     * not aligned. */
    bool is_raw;
};

enum client_call_state {
    CLIENT_CALL_PREPARED, /* not started */
    CLIENT_CALL_QUEUED,   /* waits for a lane, or for the next step of the channel */
    CLIENT_CALL_RUNNING,  /* its exchange is under way, or waits for the channel's connection */
    CLIENT_CALL_PAUSED,   /* it failed, and waits to be tried again */
    CLIENT_CALL_DONE,     /* the result is ready */
    CLIENT_CALL_FAILED,   /* `error` has the reason */
};

/* gRPC: the request, and its answer. */
struct client_grpc_call {
    struct client_grpc_request request;
    enum client_query query;         /* that the call makes, if it is one */
    struct grpc_client_call *stream; /* while it is running */
    struct grpc_message *message;    /* the answer; NULL: none yet */
    bool has_several;                /* it had a second message */
    bool was_refused;                /* the server did not begin it, and it is tried again */
};

/* A call with several answers (stream.h). */
struct client_stream {
    /* The answer that the caller has taken, valid if `has_answer`, and its memory. */
    struct arena *arena;
    struct grpc_message *message;
    bool has_answer;
    struct client_answer answer; /* gRPC */
    struct str text;             /* HTTP */
    /* HTTP: bytes of the next event, at the beginning of what has arrived; 0: none has. */
    size_t n_next;
    size_t n_searched; /* as of event_stream_find */
    struct str rest;   /* what was not taken when the exchange ended */
    bool half_closed;  /* the caller sends no more */
    sluice_done_fn *on_answer;
    bool has_arrived;              /* on_answer is due: it is in the client's `arrived` */
    TAILQ_ENTRY(sluice_call) link; /* there */
};

struct sluice_call {
    sluice_client *client;
    LIST_ENTRY(sluice_call) link;   /* in the client's `calls` or `spare` */
    TAILQ_ENTRY(sluice_call) order; /* in the client's `queue` or `done` */
    enum client_call_state state;
    struct timer_node timer;  /* its deadline, while it is queued for a lane; the end of a pause */
    bool in_done;             /* it is in `done` */
    struct client_lane *lane; /* HTTP, MIP: while it is running */
    /* How far its connection came, and whether the server may have got it: when it is done. */
    enum client_phase phase;
    bool sent;
    sluice_done_fn *on_done;
    void *user;
    uint64_t started_ns;
    const struct client_call_kind *kind;
    struct arena *arena;          /* of the request and the results */
    struct answer_block block;    /* the bytes of the answer */
    bool answered;                /* the exchange completed */
    struct http_message message;  /* HTTP: the request */
    struct mip_infer mip_request; /* MIP: the request; no items: a ping */
    uint32_t mip_bytes;           /* MIP: of its payload */
    void *mip_buffer;             /* MIP: the caller's, for the answer's payload */
    size_t mip_buffer_bytes;
    struct client_grpc_call grpc;
    struct client_stream stream;
    struct client_buffers buffers; /* KServe v2: the caller's buffers for outputs */
    struct client_headers headers; /* to send: the client's and the call's */
    uint64_t timeout_ns;
    bool has_timeout;                 /* by the caller, not the default */
    const struct client_retry *retry; /* NULL: none */
    uint32_t n_attempts;              /* that have ended */
    bool was_sent;                    /* an attempt before may have run */
    /* KServe v2: of the answer, of full size */
    const sluice_header *answer_headers;
    size_t n_answer_headers;
    sluice_client_error error;
    union {
        int32_t yes;
        sluice_server_metadata server;
        struct client_model model;
        struct client_answer answer;
        struct client_mip_answer mip;
        struct str text; /* with a NUL after it */
    } result;
};

LIST_HEAD(client_call_list, sluice_call);
TAILQ_HEAD(client_call_queue, sluice_call);

/* A connection of HTTP or MIP, which runs one call at a time. */
struct client_lane {
    TAILQ_ENTRY(client_lane) link; /* in the client's `idle` or `busy` */
    struct client *client;
    sluice_call *call; /* NULL: idle */
    struct client_watch watch;
};

struct client_channel;
TAILQ_HEAD(client_lanes, client_lane);

struct sluice_client {
    struct arena *arena; /* of what the client's options have */
    struct client_url url;
    struct client_options options; /* of each lane */
    struct client_resolver_options resolving;
    sluice_client_transport transport;
    struct client_tls *tls; /* NULL: none, or the caller's transport */
    struct client_headers headers;
    const struct client_retry *retry; /* NULL: none */
    struct client_retry_budget retry_budget;
    bool has_timeout; /* by the caller, not the default */
    struct arena_cache *cache;
    int epoll_fd;                   /* -1: none */
    struct client_channel *channel; /* gRPC; else NULL, and lanes are used */
    struct client_lanes idle;       /* the connected ones first */
    struct client_lanes busy;
    size_t n_lanes, max_lanes;
    struct client_call_list calls;
    struct client_call_queue queue;   /* calls that wait for a lane */
    struct timer_heap timers;         /* of queued and paused calls */
    struct client_call_queue done;    /* calls whose end the caller was not told */
    struct client_call_queue arrived; /* calls with a new answer that the caller was not told */
    size_t n_under_way;               /* calls that are queued or running */
    uint64_t n_finished; /* calls that ended other than by the caller, and answers of streams */
    struct client_call_list spare; /* freed calls, for their memory */
    size_t n_spare;
};

/* Makes a call with the caller's options; what it sends is prepared in it. Returns: ST_BAD_FIELD
 * for the options; ST_UNSUPPORTED for headers over MIP; ST_NO_MEMORY. Owns: *out until
 * client_call_start. */
enum status client_call_new(sluice_client *client, const struct client_call_kind *kind,
                            const sluice_call_options *options, sluice_call **out,
                            struct error *err) SLUICE_MUST_USE;
/* Queues the call and gives it to the caller; or frees it
 * (NULL is allowed) and reports why preparing it failed: `status` with `err`. */
sluice_client_status client_call_start(sluice_call *call, enum status status,
                                       const struct error *err, sluice_call **out,
                                       sluice_client_error *error);
/* Prepares a query over HTTP or gRPC. Returns: as client_query_encode and client_grpc_query_encode.
 * In infer_v2.c. */
enum status client_call_set_query(sluice_call *call, const struct client_query_args *args,
                                  struct error *err) SLUICE_MUST_USE;
/* Waits for a started call. Returns: `started` if that is not SLUICE_CLIENT_OK. */
sluice_client_status client_call_run(sluice_call *call, sluice_client_status started,
                                     sluice_client_error *error);
/* Frees all calls of a client, and the spare ones. */
void client_call_free_all(sluice_client *client);
/* The exchange of a running call is complete, or has failed: its results are made, or its error.
 * `phase` and `sent` are set. */
void client_call_finish(sluice_call *call, enum status status, struct error *err);
/* Makes a failed call as it was before it ran. */
void client_call_reset(sluice_call *call);
/* A call that is not running fails for the reason in `err`. */
void client_call_fail(sluice_call *call, const struct error *err);
/* Makes the public error for a failure of a running call, or of one of its answers. */
void client_call_describe(const sluice_call *call, const struct error *err,
                          sluice_client_error *out);
/* Fills the caller's error, which may be NULL, with that of a failed call. Returns: its status. */
sluice_client_status client_call_report(const sluice_call *call, sluice_client_error *error);
/* The call was cancelled. */
void client_call_set_cancelled(sluice_call *call);
/* Returns: when its time is over. */
uint64_t client_call_deadline_ns(const sluice_call *call);

/* Fills the caller's error, which may be NULL. Returns: the public status of an error before a call
 * has started. */
sluice_client_status client_start_error(const struct error *err, sluice_client_error *error);

#endif
