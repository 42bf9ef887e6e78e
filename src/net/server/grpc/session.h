/* The inside of the gRPC server: an HTTP/2 connection as nghttp2 sees it, and the calls on it. Sans
 * I/O: bytes go in (grpc_session_receive), events go to the methods, bytes come out
 * (grpc_session_collect_output); sockets are server.c's. For the grpc_*.c files of this room only.
 *
 * What runs inside what: methods' steps run inside nghttp2's callbacks, and what they call submits
 * to nghttp2 right there, which it allows. Two things never happen while one of its callbacks or a
 * step is on the stack: nghttp2 is not told to end the session (grpc_session_fail waits for
 * receive or output to return), and nothing is freed.
 *
 * Who may free what: a stream is freed by grpc_core_sweep, once its method has finished it, nghttp2
 * has closed it, and no byte of it is on its way to the socket. */
#ifndef SLUICE_NET_SERVER_GRPC_SESSION_H
#define SLUICE_NET_SERVER_GRPC_SESSION_H

#include <nghttp2/nghttp2.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/protobuf/grpc_text.h"
#include "core/event/timer.h"
#include "net/server/grpc/server.h"
#include "net/transport/grpc/fields.h"
#include "net/transport/grpc/receiver.h"
#include "net/transport/grpc/send_queue.h"
#include "net/transport/h2_mem.h"
#include "net/transport/h2_preface.h"
#include "net/transport/h2_rate_limit.h"
#include "net/transport/h2_scan.h"

struct grpc_session;

/* A method's path with its length, which is what mostly tells two of them apart. */
struct grpc_route {
    struct str path;
    const struct grpc_method *method;
};

/* What a stream waits for, with a bound; an index of the core's timeouts. */
enum grpc_wait {
    GRPC_WAIT_MESSAGE, /* more of a message */
    GRPC_WAIT_WINDOW,  /* the client to take more of the answer */
    GRPC_WAIT_NOTHING,
};

/* What all connections of a worker share. */
struct grpc_core {
    const struct grpc_server_options *options;
    struct worker *worker;
    struct body_pool *pool;
    struct grpc_route *routes; /* as many as methods */
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    struct small_blocks blocks; /* nghttp2's, and of what is queued */
    struct grpc_receiver_options receiver_options;
    struct timer_heap deadlines;
    struct timer_list stream_timers;
    uint64_t now_ns;                                 /* while `running` */
    bool running;                                    /* receive, output or tick is on the stack */
    struct grpc_stream *ended;                       /* to be looked at by the next sweep */
    struct grpc_session *scheduled, *last_scheduled; /* have something to say, or are over */
    struct grpc_output *spare_output;                /* one that nobody fills */
    size_t *n_alive;                                 /* calls, whether or not their connection is */
    _Atomic uint64_t *n_calls;                       /* in flight, for others to see */
    /* Something is to be written, or swept, when this turn ends. */
    void (*schedule_deferred)(struct grpc_core *core);
    /* A call, or (`whole`) the connection, was refused. May be NULL. */
    void (*on_refused)(struct grpc_session *session, const struct error *err, bool whole);
    void *user;
};

/* How far the answer is. stream.c's setter is the only one that changes it. */
enum grpc_response_state {
    GRPC_RESPONSE_NONE,   /* nothing was said */
    GRPC_RESPONSE_OPEN,   /* its head is with nghttp2; messages follow */
    GRPC_RESPONSE_ENDING, /* the status is decided; it leaves behind what is queued */
    GRPC_RESPONSE_SENT,   /* END_STREAM is with the connection */
};

/* Whose call it is. */
enum grpc_method_state {
    GRPC_METHOD_NOT_STARTED, /* no method has seen it: no event is owed */
    GRPC_METHOD_ACTIVE,      /* from GRPC_BEGIN to grpc_finish */
    GRPC_METHOD_FINISHED,    /* GRPC_END is owed */
};

struct grpc_stream {
    struct grpc_call call; /* what the method sees */
    struct grpc_core *core;
    struct grpc_session *session;    /* NULL: the connection is gone */
    struct grpc_stream *prev, *next; /* of the session */
    struct grpc_stream *ended_next;
    int32_t id;
    uint8_t method_state;   /* enum grpc_method_state */
    uint8_t response_state; /* enum grpc_response_state */
    struct timer_node deadline;
    struct list_timer timeout; /* enum grpc_wait */
    /* the head, while it comes */
    struct grpc_fields head;
    struct str http_method, path;
    struct grpc_receiver in;
    struct grpc_send_queue out;
    enum http_coding answer_coding;
    struct grpc_fields set, trailers; /* of the method's */
    int status;                       /* grpc-status, or that of a plain answer */
    struct str message;
    bool head_too_large;   /* oversized, told to the client */
    bool is_plain;         /* HTTP, but no gRPC */
    bool remote_ended;     /* END_STREAM came */
    bool half_closed;      /* ... and the method knows */
    bool deferred;         /* nghttp2 waits for more to send */
    bool response_started; /* a message was sent, or the status: a reset is no abuse */
    bool reset_submitted;  /* a message could not be sent: a reset is on its way */
    bool closed;           /* by nghttp2, or with the connection */
    bool in_sweep_list;    /* in core->ended */
    bool counted;
    bool delivering;  /* messages are being handed over: on the stack */
    bool in_callback; /* the method's step is on the stack */
};

struct grpc_session {
    struct grpc_core *core;
    nghttp2_session *h2;         /* NULL: closed */
    struct grpc_stream *streams; /* all that are alive, closed ones too */
    size_t n_alive;
    size_t n_open;                   /* of them, not closed */
    struct grpc_stream *head_stream; /* whose head is being read */
    struct grpc_stream *recent;      /* whose frame came or left last; NULL: not known */
    size_t head_bytes;               /* of that head, or of trailers */
    uint64_t message_bytes_left;     /* of the message to which bytes came last, still to
                                             come */
    struct h2_preface preface;
    struct h2_bucket control, resets;
    struct h2_scan scan;
    struct grpc_write_batch write_batch;
    struct grpc_session *next_scheduled;
    struct str plain_reply; /* is said instead of HTTP/2, then the connection ends */
    uint32_t error_code;    /* of HTTP/2, while `failing` */
    bool plain_reply_sent;
    bool settings_received; /* the client's first SETTINGS came */
    bool large_frames;      /* were allowed */
    bool sent_since_ping;   /* HEADERS or DATA were sent since the last PING came */
    bool draining;          /* the client was told that the end is near */
    bool goaway_sent;       /* ... and which calls were the last */
    bool terminating;       /* nothing more is read; the connection ends after what it has to say */
    bool terminate_submitted; /* nghttp2 knows */
    bool scheduled;
};

/* ---- session.c: what the connections of a worker share --------------------------------------- */

/* Fills in zeroed memory, in which pool, n_alive, n_calls, ask_turn, on_refused and cookie are set.
 * Returns: ST_NO_MEMORY. Owns: grpc_core_fini. */
enum status grpc_core_init(struct grpc_core *core, const struct grpc_server_options *options,
                           struct worker *worker, struct error *err)
    __attribute__((warn_unused_result));
void grpc_core_fini(struct grpc_core *core);
/* The time: as of the beginning of what is on the stack, where that is one of ours. */
uint64_t grpc_core_now(const struct grpc_core *core);
/* Asks for a turn, for the session (NULL: for the core only). */
void grpc_core_schedule_write(struct grpc_core *core, struct grpc_session *session);
/* Takes all sessions that asked, as a list by next_scheduled; the caller clears `dirty` of each,
 * before its last look at what there is or right behind it. */
struct grpc_session *grpc_core_take_scheduled(struct grpc_core *core);
/* Frees what is over. No callback that knows a stream may be on the stack. */
void grpc_core_sweep(struct grpc_core *core);
/* Cancels calls whose deadline has passed, or that wait for too long. */
void grpc_core_run_timers(struct grpc_core *core, uint64_t now_ns);
/* Returns: when to tick; UINT64_MAX: never. */
uint64_t grpc_core_next_timer_ns(const struct grpc_core *core);
const struct grpc_method *grpc_core_find_method(const struct grpc_core *core, struct str path);

/* ---- session.c: a connection ----------------------------------------------------------------- */

/* Returns: ST_NO_MEMORY. Owns: grpc_session_close. */
enum status grpc_session_open(struct grpc_core *core, struct grpc_session *session,
                              struct error *err) __attribute__((warn_unused_result));
/* Bytes from the peer, all of them. */
void grpc_session_receive(struct grpc_session *session, struct str data);
/* Says that the end is near, lets calls at hand go on, and ends as soon as there are none. */
void grpc_session_drain(struct grpc_session *session);
/* GOAWAY with `err`, before anything was said: this connection is not served. */
void grpc_session_reject(struct grpc_session *session, const struct error *err);
/* Ends the connection with an error code of HTTP/2, from anywhere. */
void grpc_session_fail(struct grpc_session *session, uint32_t code, const char *why);
/* May more be read? Not from a peer who takes no answers. */
bool grpc_session_wants_input(const struct grpc_session *session);
/* Is there something to collect? */
bool grpc_session_has_output(const struct grpc_session *session);
/* Collects what there is to be written, as much as fits. Until grpc_session_on_written nothing more
 * may be collected. Returns: false when there is nothing. */
bool grpc_session_collect_output(struct grpc_session *session, struct grpc_output *output);
/* What was collected has left (or never will). */
void grpc_session_on_written(struct grpc_session *session);
/* Nothing is under way and nothing more will be said. */
bool grpc_session_is_done(const struct grpc_session *session);
/* The connection is gone: cancels all calls. What was collected is still the socket's, until
 * grpc_session_on_written. */
void grpc_session_close(struct grpc_session *session);

/* ---- stream.c -------------------------------------------------------------------------------- */

/* Returns: NULL when out of memory. */
struct grpc_stream *grpc_stream_new(struct grpc_session *session, int32_t id);
/* Tells the method that it is over. */
void grpc_stream_free(struct grpc_stream *stream);
bool grpc_stream_can_free(const struct grpc_stream *stream);
void grpc_stream_set_response_state(struct grpc_stream *stream,
                                    enum grpc_response_state response_state);
void grpc_stream_emit(struct grpc_stream *stream, enum grpc_event event);
/* The method sees the call. */
void grpc_stream_start_method(struct grpc_stream *stream);
/* The head is complete: begins the call, or answers why not. */
void grpc_stream_on_head(struct grpc_stream *stream);
/* Nobody waits any more, or it can't go on: ends it with `err`, and tells the method. */
void grpc_stream_cancel(struct grpc_stream *stream, const struct error *err);
/* Its time is over (core->timeouts). */
void grpc_stream_timed_out(struct grpc_stream *stream, enum grpc_wait wait);
/* nghttp2 has closed it, or the connection is gone. */
void grpc_stream_closed(struct grpc_stream *stream);
/* Has the sweep look at it. */
void grpc_stream_schedule_sweep(struct grpc_stream *stream);
/* Arms the timeout for what it waits for now. */
void grpc_stream_update_timer(struct grpc_stream *stream);

/* ---- stream.c: fields in and out ------------------------------------------------------------- */

/* Keeps a field of the head. */
void grpc_head_add(struct grpc_stream *stream, struct str name, struct str value);
/* Submits the head of an answer; `trailers_only`: with the status, and nothing follows. */
void grpc_head_submit(struct grpc_stream *stream, bool trailers_only);
/* Submits the trailers, from within the data source. Returns: nghttp2's code. */
int grpc_head_submit_trailers(struct grpc_stream *stream);

/* ---- stream.c: plain HTTP requests ----------------------------------------------------------- */

void grpc_plain_answer(struct grpc_stream *stream);

/* ---- messages.c: messages in ----------------------------------------------------------------- */

/* Bytes of DATA. */
void grpc_receive_data(struct grpc_stream *stream, struct str data);
/* END_STREAM came. */
void grpc_receive_end(struct grpc_stream *stream);
/* Gives the method what it asked for. */
void grpc_receive_deliver(struct grpc_stream *stream);
/* Nothing more is wanted; lets go of what is there. */
void grpc_receive_discard(struct grpc_stream *stream);
/* Bytes are missing that only the client can send. */
bool grpc_receive_is_waiting(const struct grpc_stream *stream);

/* ---- messages.c: messages out ---------------------------------------------------------------- */

nghttp2_data_provider grpc_send_provider(struct grpc_stream *stream);
/* The status is decided: it leaves behind what is queued. */
void grpc_send_status(struct grpc_stream *stream);
/* Lets go of what is queued. */
void grpc_send_clear(struct grpc_stream *stream);
/* A message has left: its method may wait for that. */
void grpc_send_on_message_sent(struct grpc_send_queue *queue);

#endif
