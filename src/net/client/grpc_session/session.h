/* Calls, an HTTP/2 connection on top of nghttp2, and what all connections of a client share. Sans
 * I/O: bytes go in (grpc_client_session_receive), events go to the callers, bytes come out
 * (grpc_client_session_collect_output). The sockets are elsewhere: for a worker's event loop in
 * net/client/grpc, for libsluice in client/channel.h.
 *
 * Reentrancy: GRPC_CLIENT_HEAD and _MESSAGE are delivered inside nghttp2 callbacks, and their
 * handlers may submit to nghttp2, which allows that. GRPC_CLIENT_END is delivered, and calls are
 * freed, only in grpc_client_core_sweep, with no callback on the stack.
 * nghttp2_session_terminate_session is not called inside nghttp2's callbacks: a failed session is
 * terminated when output is collected.
 *
 * Lifetime: a call is freed once its caller got GRPC_CLIENT_END, nghttp2 has closed its stream, and
 * none of its bytes are queued for the socket.
 *
 * Back pressure: the server waits for the caller: a call whose messages are not read consumes its
 * stream window only, the connection window is always returned. */
#ifndef SLUICE_NET_CLIENT_GRPC_SESSION_SESSION_H
#define SLUICE_NET_CLIENT_GRPC_SESSION_SESSION_H

#include <sys/queue.h>

#include "core/event/timer_heap.h"
#include "net/client/grpc_session/call.h"
#include "net/transport/grpc/fields.h"
#include "net/transport/grpc/read_place.h"
#include "net/transport/grpc/receiver.h"
#include "net/transport/grpc/send_queue.h"

struct grpc_client_session;
struct grpc_client_stream;

/* Calls in order of arrival. */
TAILQ_HEAD(grpc_client_list, grpc_client_stream);

/* What all connections of a client share. */
struct grpc_client_core {
    struct grpc_client_limits limits; /* complete, defaults applied */
    struct str authority;             /* sent in requests */
    bool is_tls;                      /* selects the scheme of requests */
    struct arena_cache *arenas;
    struct net_budget budget;
    struct body_pool pool;
    struct grpc_receiver_options receiver_options;
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    struct timer_heap deadlines;
    struct grpc_client_list waiting;  /* calls that wait for a connection */
    struct grpc_client_stream *ended; /* checked by the next sweep, in the order in which they were
                                         added */
    struct grpc_client_stream *last_ended;
    struct grpc_output *spare_output; /* a free output buffer */
    size_t n_alive;                   /* number of calls */
    uint64_t now_ns;                  /* while `running` */
    bool running;                     /* receive, collect_output or run_timers is on the stack */
    /* Schedules a deferred run at the end of this event-loop iteration: write, start calls,
     * sweep. */
    void (*schedule_deferred)(struct grpc_client_core *core);
};

/* State of a call. Changed only by set_state in call.c. */
enum grpc_client_state {
    GRPC_CLIENT_WAITING,    /* waiting for a connection */
    GRPC_CLIENT_OPEN,       /* submitted to nghttp2 */
    GRPC_CLIENT_STATUS_SET, /* the status is known; GRPC_CLIENT_END is pending */
    GRPC_CLIENT_NOTIFIED,   /* GRPC_CLIENT_END was delivered; waits for nghttp2 and the socket */
};

struct grpc_client_stream {
    struct grpc_client_call call; /* the caller's view */
    struct grpc_client_core *core;
    struct grpc_client_session *session; /* NULL: not started, or the connection is closed */
    /* The list that holds it: the waiting calls, or a session's. */
    struct grpc_client_list *list;
    TAILQ_ENTRY(grpc_client_stream) link;
    struct grpc_client_stream *ended_next;
    grpc_client_event_cb *on_event;
    struct str path;
    struct grpc_fields set; /* metadata to send */
    struct grpc_fields head, trailers;
    struct grpc_receiver in;
    struct grpc_send_queue out;
    struct timer_node deadline;
    uint64_t deadline_ns; /* 0: none */
    int32_t id;
    uint8_t state;        /* enum grpc_client_state */
    bool streams;         /* streaming call */
    bool wait_for_ready;  /* keeps waiting when connection attempts fail */
    bool half_closed;     /* the caller sends no more messages */
    bool end_stream_sent; /* END_STREAM was given to nghttp2 */
    bool head_received;   /* the head was processed, or is the whole response */
    bool head_too_large;  /* the fields exceed the limit */
    bool remote_ended;    /* END_STREAM was received */
    bool deferred;        /* nghttp2 waits for more data to send */
    bool closed;          /* closed by nghttp2, never submitted to it, or connection closed */
    bool in_sweep_list;   /* in core->ended */
    bool delivering;      /* messages are being delivered: on the stack */
    bool in_callback;     /* the caller's callback is on the stack */
};

struct grpc_client_session {
    struct grpc_client_core *core;
    nghttp2_session *h2; /* NULL: closed */
    struct grpc_client_list streams;
    size_t n_open;                          /* calls that nghttp2 has not closed */
    struct grpc_client_stream *head_stream; /* the call whose head or trailers are being received */
    size_t head_bytes;
    struct h2_walk walk;
    struct grpc_read_place read_place;
    struct grpc_write_batch write_batch;
    struct error error;        /* why the session failed; ST_OK: it has not */
    struct error goaway_error; /* reason from the server's GOAWAY; ST_OK: none or no error */
    uint32_t error_code;       /* HTTP/2 error code sent to the server */
    /* First bytes of the connection, to detect a server of another protocol. */
    char first[8];
    size_t n_first;
    bool settings_received;   /* the server's first SETTINGS arrived */
    bool call_answered;       /* a response head was received */
    bool going_away;          /* no new calls start */
    bool terminate_submitted; /* nghttp2 was given the error */
    bool needs_io;            /* output may be pending, or the session may be done */
};

/* ---- session.c: what connections share ------------------------------------------------------- */

/* Initialises zeroed memory in which limits (0 selects a default), authority, arenas and
 * schedule_deferred are set. Returns: ST_NO_MEMORY. Owns: grpc_client_core_fini. */
enum status grpc_client_core_init(struct grpc_client_core *core, struct error *err) SLUICE_MUST_USE;
void grpc_client_core_fini(struct grpc_client_core *core);
uint64_t grpc_client_core_now(const struct grpc_client_core *core);
/* Starts waiting calls on this session, up to its capacity. */
void grpc_client_core_dispatch(struct grpc_client_core *core, struct grpc_client_session *session);
/* Ends waiting calls with `err`; those with wait_for_ready only if `all`. */
void grpc_client_core_fail_waiting(struct grpc_client_core *core, const struct error *err,
                                   bool all);
/* Delivers GRPC_CLIENT_END and frees finished calls. */
void grpc_client_core_sweep(struct grpc_client_core *core);
/* Ends calls whose deadline has passed. */
void grpc_client_core_run_timers(struct grpc_client_core *core, uint64_t now_ns);
/* Returns: when to call grpc_client_core_run_timers next; UINT64_MAX: never. */
uint64_t grpc_client_core_next_timer_ns(const struct grpc_client_core *core);

/* ---- session.c: a connection ----------------------------------------------------------------- */

/* Initialises zeroed memory. Returns: ST_NO_MEMORY. Owns: grpc_client_session_close. */
enum status grpc_client_session_open(struct grpc_client_core *core,
                                     struct grpc_client_session *session,
                                     struct error *err) SLUICE_MUST_USE;
/* Returns: where the next bytes, which grpc_client_session_receive gets then, are to be read to, as
 * they are a large message's; *n_bytes: at most so many. NULL: anywhere. */
char *grpc_client_session_read_buffer(struct grpc_client_session *session, size_t *n_bytes);
/* Processes all bytes received from the server. */
void grpc_client_session_receive(struct grpc_client_session *session, struct str data);
/* Returns: whether another call may start. */
bool grpc_client_session_can_start_call(const struct grpc_client_session *session);
bool grpc_client_session_has_output(const struct grpc_client_session *session);
/* Collects pending output up to the capacity of `output`; nothing more may be collected until
 * grpc_client_session_on_written. Returns: false when there is none. */
bool grpc_client_session_collect_output(struct grpc_client_session *session,
                                        struct grpc_output *output);
/* The collected output was sent, or never will be. */
void grpc_client_session_on_written(struct grpc_client_session *session);
/* Returns: whether no call is open and no output is pending: the connection can be closed. */
bool grpc_client_session_is_done(const struct grpc_client_session *session);
/* Sends GOAWAY: no new calls start. */
void grpc_client_session_send_goaway(struct grpc_client_session *session);
/* The connection is closed: its calls end with `err`, or with the earlier reason of its failure.
 * Collected output stays in use until grpc_client_session_on_written. */
void grpc_client_session_close(struct grpc_client_session *session, const struct error *err);
/* Returns: why the session failed or is failing, if known, else `err`. */
const struct error *grpc_client_session_close_reason(const struct grpc_client_session *session,
                                                     const struct error *err);
/* Output is pending: schedules a write. */
void grpc_client_session_schedule_write(struct grpc_client_session *session);

/* ---- call.c ---------------------------------------------------------------------------------- */

enum status grpc_client_stream_new(struct grpc_client_core *core,
                                   const struct grpc_client_call_options *options,
                                   struct grpc_client_stream **out,
                                   struct error *err) SLUICE_MUST_USE;
/* Starts a waiting call on that session. Returns: false when the session takes no more calls; the
 * call keeps waiting. */
bool grpc_client_stream_start(struct grpc_client_stream *stream,
                              struct grpc_client_session *session);
/* Sets the call's status: `err`, or the server's (err->status ST_OK or ST_REFUSED, with `code`).
 * Only the first status counts. */
void grpc_client_stream_set_status(struct grpc_client_stream *stream, int code,
                                   const struct error *err);
/* nghttp2 closed the stream, or the connection is closed. */
void grpc_client_stream_closed(struct grpc_client_stream *stream);
/* Delivers GRPC_CLIENT_END and frees the call, each as soon as it is allowed. */
void grpc_client_stream_sweep(struct grpc_client_stream *stream);
/* The caller of a call that has its status takes back the bytes of its messages; those that are in
 * a collected output stay in use until it is written. Returns: false when out of memory: the
 * connection must be closed then. */
bool grpc_client_stream_give_bytes_back(struct grpc_client_stream *stream) SLUICE_MUST_USE;
/* A message was sent. */
void grpc_client_stream_on_message_sent(struct grpc_send_queue *queue);

/* ---- call.c: what the server sent ------------------------------------------------------------ */

/* Adds a field of the head or of the trailers. */
void grpc_client_response_add_field(struct grpc_client_stream *stream, struct str name,
                                    struct str value);
/* The head or the trailers are complete; `last`: END_STREAM was set. */
void grpc_client_response_finish_head(struct grpc_client_stream *stream, bool last);
/* Processes bytes of DATA. */
void grpc_client_response_add_data(struct grpc_client_stream *stream, struct str data);
/* END_STREAM arrived. */
void grpc_client_response_on_end_stream(struct grpc_client_stream *stream);
/* The stream was reset, or refused by GOAWAY. */
void grpc_client_response_on_reset(struct grpc_client_stream *stream, uint32_t code);

#endif
