/* An HTTP/2 connection on top of nghttp2 and the gRPC calls on it. Sans I/O: bytes go in
 * (grpc_session_receive), events go to the methods, bytes come out (grpc_session_collect_output);
 * server.c has the sockets. On a port of HTTP, requests that are not gRPC go to http_requests.
 * Internal to net/server.
 *
 * Reentrancy: method callbacks run inside nghttp2's callbacks, and may submit to nghttp2, which
 * allows that. While an nghttp2 or method callback is on the stack, the session is not terminated
 * (a failed session is when grpc_session_receive or grpc_session_collect_output returns) and
 * nothing is freed.
 *
 * Lifetime: a stream is freed by grpc_core_sweep, once its method has finished it, nghttp2 has
 * closed it, and none of its bytes are queued for the socket.
 *
 * Back pressure: a method that does not read holds at most its stream window, and the client waits;
 * the connection window is always returned. A client that does not read: responses stay in the
 * streams' send queues, one collected output waits for the socket, and above MAX_QUEUED frames the
 * connection is not read (grpc_session_wants_input). A stream that takes less than min_write_rate
 * for write_timeout is reset; what is queued meanwhile does not prolong it. */
#ifndef SLUICE_NET_SERVER_GRPC_SESSION_H
#define SLUICE_NET_SERVER_GRPC_SESSION_H

#include <nghttp2/nghttp2.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "codec/grpc/text.h"
#include "codec/http1/web_access.h"
#include "core/event/timer.h"
#include "net/server/grpc/server.h"
#include "net/server/receive_rate.h"
#include "net/transport/grpc/fields.h"
#include "net/transport/grpc/read_place.h"
#include "net/transport/grpc/receiver.h"
#include "net/transport/grpc/send_queue.h"
#include "net/transport/h2_preface.h"
#include "net/transport/h2_rate_limit.h"
#include "net/transport/h2_scan.h"
#include "net/transport/h2_setup.h"
#include "net/transport/memory_account.h"

struct grpc_session;
struct grpc_stream;

/* A method's path with its length, so that most comparisons end at the length. */
struct grpc_route {
    struct str path;
    const struct grpc_method *method;
};

/* Serves the requests of a connection that are not gRPC: net/server/http/h2.c, for a port of HTTP.
 * The functions run inside nghttp2's callbacks. */
struct grpc_http_requests {
    void *user;
    /* Of these streams. Its events are GRPC_MESSAGE, the body, whose receipt on_head has begun with
     * grpc_exchange_receive; GRPC_CANCELLED and GRPC_END. */
    struct grpc_method method;
    /* The head is complete; `is_whole`: no body follows. `refusal`: NULL, or why it cannot be
     * served, and some of its fields may be missing. */
    void (*on_head)(struct grpc_stream *stream, bool is_whole, const struct error *refusal);
    /* The body is too large, too slow, malformed, or there is no memory for it. */
    void (*on_rejected)(struct grpc_stream *stream, const struct error *why);
    /* `n_bytes` of a body arrived that is not wanted; 0: the response was sent before the end of
     * the request. Returns: whether the rest may come, else the client is told to stop. */
    bool (*skips)(struct grpc_stream *stream, size_t n_bytes);
};

/* What a stream waits for; a class of the core's stream_timers. */
enum grpc_wait {
    GRPC_WAIT_MESSAGE, /* the rest of a message */
    GRPC_WAIT_BEHIND,  /* likewise, of which nothing came in time: what had arrived of its
                          connection by then is handled first */
    GRPC_WAIT_WINDOW,  /* the client to take more of the response */
    GRPC_WAIT_NOTHING,
};

TAILQ_HEAD(grpc_stream_list, grpc_stream);

/* What all connections of a worker share. */
struct grpc_core {
    const struct grpc_server_options *options;
    struct worker *worker;
    struct body_pool *pool;
    struct grpc_route *routes; /* as many as methods */
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    struct grpc_receiver_options receiver_options, small_receiver_options;
    struct timer_heap deadlines;
    struct timer_list stream_timers;
    uint64_t now_ns; /* while `running` */
    /* grpc_session_receive, grpc_session_collect_output or grpc_core_run_timers is on the stack. */
    bool running;
    /* Compressed input is pending that could be decompressed: a slice of it in each iteration. */
    struct grpc_stream_list inflating;
    uint64_t inflate_left;               /* of this iteration's slice, in bytes out */
    struct grpc_stream *ended;           /* checked by the next sweep */
    STAILQ_HEAD(, grpc_session) closing; /* with streams that are not closed yet */
    TAILQ_HEAD(grpc_session_list, grpc_session) scheduled; /* with output, or done; oldest first */
    struct grpc_output *spare_output;                      /* a free output buffer */
    size_t *n_alive;                                       /* calls, also of closed connections */
    _Atomic uint64_t *n_calls;                             /* in flight, for metrics */
    /* Schedules a deferred run at the end of this event-loop iteration: write, sweep. */
    void (*schedule_deferred)(struct grpc_core *core);
    /* A call, or (`whole`) the connection, was refused. May be NULL. */
    void (*on_refused)(struct grpc_session *session, const struct error *err, bool whole);
    /* Returns: whether bytes of the client wait for this process that had arrived when it was first
     * called with that `*mark`, which is 0 then: a message may be late for that. May be NULL. */
    bool (*is_behind)(struct grpc_session *session, uint64_t *mark);
    /* Returns: bytes of the client that wait for this process. May be NULL. */
    uint64_t (*waiting_bytes)(struct grpc_session *session);
    /* The close of the session took several sweeps, and is complete. May be NULL. */
    void (*on_closed)(struct grpc_session *session);
    void *user;
};

/* State of the response. Changed only by grpc_stream_set_response_state. */
enum grpc_response_state {
    GRPC_RESPONSE_NONE,   /* nothing submitted */
    GRPC_RESPONSE_OPEN,   /* the head was submitted; messages follow */
    GRPC_RESPONSE_ENDING, /* the status is known; sent after the queued messages */
    GRPC_RESPONSE_SENT,   /* END_STREAM was sent */
};

/* State of the method's call. */
enum grpc_method_state {
    GRPC_METHOD_NOT_STARTED, /* no event delivered: GRPC_END is not needed */
    GRPC_METHOD_ACTIVE,      /* from GRPC_BEGIN to grpc_finish */
    GRPC_METHOD_FINISHED,    /* GRPC_END is pending */
};

struct grpc_stream {
    struct grpc_call call; /* the method's view */
    struct grpc_core *core;
    struct grpc_session *session;  /* NULL: the connection is closed */
    TAILQ_ENTRY(grpc_stream) link; /* in the session's list */
    struct grpc_stream *ended_next;
    TAILQ_ENTRY(grpc_stream) inflating_link;
    int32_t id;
    uint8_t method_state;   /* enum grpc_method_state */
    uint8_t response_state; /* enum grpc_response_state */
    struct timer_node deadline;
    struct list_timer timeout; /* class: enum grpc_wait */
    uint64_t begun_ns;         /* the head was complete */
    /* the head while it is received */
    struct grpc_fields head;
    struct str http_method, path;
    struct grpc_receiver in;
    struct grpc_send_queue out;
    enum http_coding answer_coding;
    struct receive_rate message_rate; /* of messages that are incomplete */
    uint64_t behind_mark;             /* core->is_behind, while it waits for GRPC_WAIT_BEHIND */
    uint64_t n_sent;                  /* bytes of messages collected since sent_since_ns, over */
    uint64_t sent_since_ns;           /* which the rate is looked at; 0: nothing is queued */
    struct grpc_fields set, trailers; /* set by the method */
    int status;                       /* grpc-status, or the HTTP status of a plain response */
    struct str message;
    size_t n_head_bytes, n_head_reserved; /* kept for the stream; of these, reserved in the
                                             budget */
    size_t n_unused_fields;               /* received, not kept */
    bool head_too_large;                  /* over the limit; the client gets an error */
    struct memory_overhead overhead;      /* the stream itself: count_stream */
    enum memory_open_call memory;         /* of it: unless granted, the client gets an error */
    bool head_over_budget;                /* the budget is used up; the client gets an error */
    bool is_plain;                        /* an HTTP request that is not gRPC, and is refused */
    bool is_exchange;                     /* one that session->http_requests serves */
    bool remote_ended;                    /* END_STREAM was received */
    bool message_delivered;               /* the client has sent a whole message */
    bool half_closed;                     /* GRPC_HALF_CLOSE was delivered */
    bool deferred;                        /* nghttp2 waits for more data to send */
    bool response_sent;                   /* the response's head was sent: a reset is no abuse */
    bool reset_submitted; /* the server submitted RST_STREAM because it can't send the response */
    bool closed;          /* closed by nghttp2, or connection closed */
    bool in_sweep_list;   /* in core->ended */
    bool counted;
    bool inflating;   /* in core->inflating */
    bool delivering;  /* messages are being delivered: on the stack */
    bool in_callback; /* the method's callback is on the stack */
};

struct grpc_session {
    struct grpc_core *core;
    struct memory_account *account;  /* of the connection; NULL: memory is not counted */
    nghttp2_session *h2;             /* NULL: closed */
    struct h2_memory memory;         /* of h2 */
    struct grpc_stream_list streams; /* all that are not freed, closed ones included */
    size_t n_alive;
    size_t n_open;                   /* streams that are not closed */
    struct grpc_stream *head_stream; /* the stream whose head is being received */
    struct grpc_stream *recent;      /* result of the last lookup by id; NULL: none */
    size_t head_bytes;               /* of the head or trailers being received, decoded */
    size_t head_wire_bytes;          /* the same as received */
    uint64_t message_bytes_left;     /* missing bytes of the message that received bytes last */
    struct h2_preface preface;
    struct h2_bucket control, resets, heads;
    uint32_t window_credit; /* WINDOW_UPDATE frames that the peer may send for what it got */
    struct h2_scan scan;
    struct grpc_read_place read_place;
    size_t n_table_bytes; /* of its client's HPACK table, by HPACK's count */
    uint64_t n_received;
    uint64_t n_sent; /* bytes of messages collected for the socket */
    struct grpc_write_batch write_batch;
    TAILQ_ENTRY(grpc_session) scheduled_link;
    STAILQ_ENTRY(grpc_session) closing_link;
    struct grpc_stream *drain_next; /* of grpc_session_drain_some; NULL: none is left */
    struct str plain_reply;         /* sent instead of HTTP/2; then the connection closes */
    uint32_t error_code;            /* HTTP/2 error code, while `terminating` */
    bool plain_reply_sent;
    /* On a port of HTTP (grpc_call.is_on_http_port): requests that are not gRPC, and where their
     * client has connected; NULL: they are refused. */
    const struct grpc_http_requests *http_requests;
    const struct web_listener *listener;
    bool settings_received;   /* the client's first SETTINGS arrived */
    bool large_frames;        /* larger frames were allowed */
    bool sent_since_ping;     /* HEADERS or DATA were sent since the last PING arrived */
    bool draining;            /* the shutdown notice was sent */
    bool goaway_sent;         /* GOAWAY with the last stream id was sent */
    bool terminating;         /* nothing more is read; closes after its output is sent */
    bool terminate_submitted; /* nghttp2 was given the error */
    bool scheduled;           /* in core->scheduled, or taken from it and not flushed yet */
    bool in_schedule;         /* in core->scheduled */
    bool closing;             /* in core->closing, or closed */
};

/* ---- server.c -------------------------------------------------------------------------------- */

/* Of connections that a server of HTTP passes to this one, and which outlives them. Thread: before
 * the first of them. */
void grpc_server_set_http_requests(struct grpc_server *server,
                                   const struct grpc_http_requests *requests);
/* Returns: server_worker_index of its worker. */
size_t grpc_core_worker_index(const struct grpc_core *core);

/* ---- session.c: what the connections of a worker share --------------------------------------- */

/* Initialises zeroed memory in which pool, n_alive, n_calls, schedule_deferred, on_refused and user
 * are set. Returns: ST_NO_MEMORY. Owns: grpc_core_fini. */
enum status grpc_core_init(struct grpc_core *core, const struct grpc_server_options *options,
                           struct worker *worker, struct error *err) SLUICE_MUST_USE;
void grpc_core_fini(struct grpc_core *core);
/* Returns: the time at which the current receive, output or timer run began, or now. */
uint64_t grpc_core_now(const struct grpc_core *core);
/* Schedules a deferred run, for the session (NULL: for the core only). */
void grpc_core_schedule_write(struct grpc_core *core, struct grpc_session *session);
/* Takes the session that was scheduled first. The caller clears its `scheduled`, before its last
 * check for output or right after it. Returns: NULL: none is scheduled. */
struct grpc_session *grpc_core_take_scheduled(struct grpc_core *core);
/* Decompresses a slice of the pending input. Streams that are left in core->inflating, or added to
 * it, are for the next iteration. */
void grpc_core_inflate_more(struct grpc_core *core);
/* Closes some streams of closed sessions, and frees finished ones. No callback that uses a stream
 * may be on the stack. Returns: whether closed sessions have streams left, for the next
 * iteration. */
bool grpc_core_sweep(struct grpc_core *core);
/* Cancels calls whose deadline or timeout has passed. */
void grpc_core_run_timers(struct grpc_core *core, uint64_t now_ns);
/* Returns: when to call grpc_core_run_timers next; UINT64_MAX: never. */
uint64_t grpc_core_next_timer_ns(const struct grpc_core *core);
const struct grpc_method *grpc_core_find_method(const struct grpc_core *core, struct str path);

/* ---- session.c: a connection ----------------------------------------------------------------- */

/* Initialises zeroed memory: a session without streams, which holds nothing until it is opened.
 * Thread: any, before the worker sees the session. */
void grpc_session_init(struct grpc_session *session, struct grpc_core *core);
/* Returns: ST_NO_MEMORY. Owns: grpc_session_close. */
enum status grpc_session_open(struct grpc_session *session, struct error *err) SLUICE_MUST_USE;
/* Returns: how many of the bytes at the front of `data`, one at least, the next
 * grpc_session_receive may get so that it takes a small part of a millisecond: a few frames with
 * calls, or all of a message's bytes. */
size_t grpc_session_next_step(const struct grpc_session *session, struct str data);
/* Returns: where the next bytes, which grpc_session_receive gets then, are to be read to, as they
 * are a large message's; *n_bytes: at most so many. NULL: anywhere. */
char *grpc_session_read_buffer(struct grpc_session *session, size_t *n_bytes);
/* Processes all bytes received from the peer. */
void grpc_session_receive(struct grpc_session *session, struct str data);
/* Sends the shutdown notice; running calls continue, and the session is done when there are none.
 * Streaming calls whose client has sent no message for a second are cancelled, some now and the
 * others by grpc_session_drain_some. */
void grpc_session_drain(struct grpc_session *session);
/* Returns: whether calls are left to be checked, in the next iteration. */
bool grpc_session_drain_some(struct grpc_session *session);
/* Of a session without calls: sends GOAWAY; it is done then, without an answer of the client. */
void grpc_session_end(struct grpc_session *session);
/* Sends a PING, which the client must answer. */
void grpc_session_ping(struct grpc_session *session);
/* Refuses the connection: sends GOAWAY with `err` as its only frame. */
void grpc_session_reject(struct grpc_session *session, const struct error *err);
/* Ends the connection with an HTTP/2 error code. Callable anywhere. */
void grpc_session_fail(struct grpc_session *session, uint32_t code, const char *why);
/* Returns: whether the client has begun a call on this connection. */
bool grpc_session_had_call(const struct grpc_session *session);
/* Returns: whether to read. Not while the peer does not read responses. */
bool grpc_session_wants_input(const struct grpc_session *session);
/* Returns: whether output is pending. */
bool grpc_session_has_output(const struct grpc_session *session);
/* Collects pending output up to the capacity of `output`; nothing more may be collected until
 * grpc_session_on_written. Returns: false when there is none. */
bool grpc_session_collect_output(struct grpc_session *session, struct grpc_output *output);
/* The collected output was sent, or never will be. */
void grpc_session_on_written(struct grpc_session *session);
/* Returns: whether no call is open and no output is pending. */
bool grpc_session_is_done(const struct grpc_session *session);
/* Ends the calls with messages of which the client has taken nothing since `since_ns`. Returns: how
 * many. */
size_t grpc_session_end_stalled_calls(struct grpc_session *session, uint64_t since_ns);
/* The connection is closed: cancels all calls, or, as a proxy may have thousands of them, some now
 * and the others with the next sweeps; until then the session stays in use (`h2`, core.on_closed).
 * Collected output stays in use until grpc_session_on_written. */
void grpc_session_close(struct grpc_session *session);

/* ---- stream.c -------------------------------------------------------------------------------- */

/* Returns: NULL when out of memory. */
struct grpc_stream *grpc_stream_new(struct grpc_session *session, int32_t id);
/* Delivers GRPC_END, if needed, and frees it. */
void grpc_stream_free(struct grpc_stream *stream);
bool grpc_stream_can_free(const struct grpc_stream *stream);
void grpc_stream_set_response_state(struct grpc_stream *stream,
                                    enum grpc_response_state response_state);
void grpc_stream_emit(struct grpc_stream *stream, enum grpc_event event);
/* Delivers GRPC_BEGIN. */
void grpc_stream_start_method(struct grpc_stream *stream);
/* The head is complete: starts the call or the exchange, or refuses it. `is_whole`: END_STREAM
 * arrived with it. */
void grpc_stream_on_head(struct grpc_stream *stream, bool is_whole);
/* Resets the stream: no response, or not all of it, can be sent. */
void grpc_stream_reset(struct grpc_stream *stream, uint32_t code);
/* The client cannot or will not be served: ends the response with `err` and delivers
 * GRPC_CANCELLED. */
void grpc_stream_cancel(struct grpc_stream *stream, const struct error *err);
/* A timer of core->stream_timers expired. */
void grpc_stream_timed_out(struct grpc_stream *stream, enum grpc_wait wait);
/* Ends the call if its messages wait for the client, which has taken nothing since `since_ns`.
 * Returns: whether it did. */
bool grpc_stream_end_if_stalled(struct grpc_stream *stream, uint64_t since_ns);
/* nghttp2 closed the stream, or the connection is closed. */
void grpc_stream_closed(struct grpc_stream *stream);
/* Removes it from the session's list, unless the session is closed. */
void grpc_stream_unlink(struct grpc_stream *stream);
/* Puts it into the list of the next sweep. */
void grpc_stream_schedule_sweep(struct grpc_stream *stream);
/* Starts the timeout that applies now. */
void grpc_stream_update_timer(struct grpc_stream *stream);
/* All of the response was sent, and the client still sends. */
void grpc_stream_on_early_answer(struct grpc_stream *stream);
/* The client has taken `n_bytes` of the response. */
void grpc_stream_on_sent(struct grpc_stream *stream, size_t n_bytes);

/* ---- stream.c: fields in and out ------------------------------------------------------------- */

/* Stores a field of the head. */
void grpc_head_add(struct grpc_stream *stream, struct str name, struct str value);
/* Submits the response's head; `trailers_only`: with the status, and END_STREAM. */
void grpc_head_submit(struct grpc_stream *stream, bool trailers_only);
/* Submits the trailers, inside the data source callback. Returns: nghttp2's code. */
int grpc_head_submit_trailers(struct grpc_stream *stream);

/* ---- stream.c: plain HTTP requests ----------------------------------------------------------- */

void grpc_plain_answer(struct grpc_stream *stream);

/* ---- exchange.c: for struct grpc_http_requests ----------------------------------------------- */

/* Receives the body, in the call's arena; begun in on_head. Returns: as body_init. */
enum status grpc_exchange_receive(struct grpc_stream *stream, const struct body_plan *plan,
                                  struct error *err) SLUICE_MUST_USE;
/* Sends 100 (Continue). */
void grpc_exchange_continue(struct grpc_stream *stream);
/* Returns: whether a response can still be sent. */
bool grpc_exchange_is_open(const struct grpc_stream *stream);
/* Submits the response's head; unless `has_body`, it is the whole response. Fields without
 * GRPC_NV_NO_COPY_NAME may have a name in any case. */
void grpc_exchange_submit_head(struct grpc_stream *stream, const nghttp2_nv *fields,
                               size_t n_fields, bool has_body);
/* Appends a part of the body, not empty, to the send queue, as grpc_send; its descriptor is in
 * `arena`, NULL: on the heap. Out of memory the stream is reset. */
void grpc_exchange_send(struct grpc_stream *stream, struct arena *arena, const struct piece *pieces,
                        size_t n_pieces, void (*release)(void *user), void *user);
/* The body is late, or the rest of one that is dropped. */
void grpc_exchange_timed_out(struct grpc_stream *stream);
/* The response is complete, or is not sent: exactly once. */
void grpc_exchange_finish(struct grpc_stream *stream);

/* ---- receive.c ------------------------------------------------------------------------------- */

/* Processes bytes of DATA. */
void grpc_receive_data(struct grpc_stream *stream, struct str data);
/* Continues with a stream that was taken from core->inflating. */
void grpc_receive_inflate_more(struct grpc_stream *stream);
/* END_STREAM arrived. */
void grpc_receive_end(struct grpc_stream *stream);
/* Delivers the messages that the method requested. */
void grpc_receive_deliver(struct grpc_stream *stream);
/* No more messages are wanted: drops what is buffered. */
void grpc_receive_discard(struct grpc_stream *stream);
/* Returns: whether the client must send more bytes. */
bool grpc_receive_is_waiting(const struct grpc_stream *stream);

/* ---- send.c ---------------------------------------------------------------------------------- */

nghttp2_data_provider grpc_send_provider(struct grpc_stream *stream);
/* There is more to send, or the response has ended: nghttp2 asks for it again. */
void grpc_send_resume(struct grpc_stream *stream);
/* The status is known: sent after the queued messages. */
void grpc_send_status(struct grpc_stream *stream);
/* Drops the queued messages. */
void grpc_send_clear(struct grpc_stream *stream);
/* A message was sent: delivers GRPC_WRITABLE when all are. */
void grpc_send_on_message_sent(struct grpc_send_queue *queue);

#endif
