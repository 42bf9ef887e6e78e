/* The inside of the gRPC server: an HTTP/2 connection as nghttp2 sees it, and the calls on it. Sans
 * I/O: bytes go in (grpc_session_receive), events go to the methods, bytes come out
 * (grpc_session_output); sockets are server.c's. For the grpc_*.c files of this room only.
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
#include "core/event/deadlines.h"
#include "net/server/grpc/server.h"
#include "net/server/timeouts.h"
#include "net/transport/grpc/fields.h"
#include "net/transport/grpc/output.h"
#include "net/transport/grpc/receiver.h"
#include "net/transport/h2_abuse.h"
#include "net/transport/h2_mem.h"
#include "net/transport/h2_preface.h"
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
    struct grpc_receiver_means means;
    struct deadlines deadlines;
    struct timeouts timeouts;
    uint64_t now_ns;                         /* while `running` */
    bool running;                            /* receive, output or tick is on the stack */
    struct grpc_stream *ended;               /* to be looked at by the next sweep */
    struct grpc_session *dirty, *dirty_last; /* have something to say, or are over */
    struct grpc_output *spare;               /* one that nobody fills */
    size_t *n_alive;                         /* calls, whether or not their connection is */
    _Atomic uint64_t *n_calls;               /* in flight, for others to see */
    /* Something is to be written, or swept, when this turn ends. */
    void (*ask_turn)(struct grpc_core *core);
    /* A call, or (`whole`) the connection, was refused. May be NULL. */
    void (*on_refused)(struct grpc_session *session, const struct error *err, bool whole);
    void *cookie;
};

/* How far the answer is. stream.c's setter is the only one that changes it. */
enum grpc_answer {
    GRPC_ANSWER_NONE,   /* nothing was said */
    GRPC_ANSWER_OPEN,   /* its head is with nghttp2; messages follow */
    GRPC_ANSWER_ENDING, /* the status is decided; it leaves behind what is queued */
    GRPC_ANSWER_SENT,   /* END_STREAM is with the connection */
};

/* Whose call it is. */
enum grpc_hold {
    GRPC_UNSEEN, /* no method has seen it: no event is owed */
    GRPC_HELD,   /* from GRPC_BEGIN to grpc_finish */
    GRPC_LET_GO, /* GRPC_END is owed */
};

struct grpc_stream {
    struct grpc_call call; /* what the method sees */
    struct grpc_core *core;
    struct grpc_session *session;    /* NULL: the connection is gone */
    struct grpc_stream *prev, *next; /* of the session */
    struct grpc_stream *ended_next;
    int32_t id;
    uint8_t hold;   /* enum grpc_hold */
    uint8_t answer; /* enum grpc_answer */
    struct deadline deadline;
    struct timeout timeout; /* enum grpc_wait */
    /* the head, while it comes */
    struct grpc_fields head;
    struct str http_method, path;
    struct grpc_receiver in;
    struct grpc_queue out;
    enum http_coding answer_coding;
    struct grpc_fields set, trailers; /* of the method's */
    int status;                       /* grpc-status, or that of a plain answer */
    struct str message;
    bool head_over;    /* oversized, told to the client */
    bool is_plain;     /* HTTP, but no gRPC */
    bool remote_ended; /* END_STREAM came */
    bool half_closed;  /* ... and the method knows */
    bool deferred;     /* nghttp2 waits for more to send */
    bool served;       /* a message was sent, or the status: a reset is no abuse */
    bool broken;       /* a message could not be sent: a reset is on its way */
    bool closed;       /* by nghttp2, or with the connection */
    bool sweeping;     /* in core->ended */
    bool counted;
    bool giving;   /* messages are being handed over: on the stack */
    bool stepping; /* the method's step is on the stack */
};

struct grpc_session {
    struct grpc_core *core;
    nghttp2_session *h2;         /* NULL: closed */
    struct grpc_stream *streams; /* all that are alive, closed ones too */
    size_t n_alive;
    size_t n_open;               /* of them, not closed */
    struct grpc_stream *heading; /* whose head is being read */
    struct grpc_stream *recent;  /* whose frame came or left last; NULL: not known */
    size_t head_bytes;           /* of that head, or of trailers */
    uint64_t bulk_left;          /* of the message to which bytes came last, still to come */
    struct h2_preface preface;
    struct h2_bucket control, resets;
    struct h2_scan scan;
    struct grpc_flight flight;
    struct grpc_session *dirty_next;
    struct str plain;    /* is said instead of HTTP/2, then the connection ends */
    uint32_t error_code; /* of HTTP/2, while `failing` */
    bool plain_said;
    bool greeted;      /* the client's first SETTINGS came */
    bool large_frames; /* were allowed */
    bool spoke;        /* HEADERS or DATA were sent since the last PING came */
    bool draining;     /* the client was told that the end is near */
    bool said_goodbye; /* ... and which calls were the last */
    bool failing;      /* nothing more is read; the connection ends after what it has to say */
    bool told;         /* nghttp2 knows */
    bool dirty;
};

/* ---- core.c ----------------------------------------------------------------------------- */

/* Fills in zeroed memory, in which pool, n_alive, n_calls, ask_turn, on_refused and cookie are set.
 * Returns: ST_NO_MEMORY. Owns: grpc_core_fini. */
enum status grpc_core_init(struct grpc_core *core, const struct grpc_server_options *options,
                           struct worker *worker, struct error *err)
    __attribute__((warn_unused_result));
void grpc_core_fini(struct grpc_core *core);
/* The time: as of the beginning of what is on the stack, where that is one of ours. */
uint64_t grpc_core_now(const struct grpc_core *core);
/* Asks for a turn, for the session (NULL: for the core only). */
void grpc_core_ask(struct grpc_core *core, struct grpc_session *session);
/* Takes all sessions that asked, as a list by dirty_next; the caller clears `dirty` of each, before
 * its last look at what there is or right behind it. */
struct grpc_session *grpc_core_take_dirty(struct grpc_core *core);
/* Forgets that it asked. */
void grpc_core_forget(struct grpc_core *core, struct grpc_session *session);
/* Frees what is over. No callback that knows a stream may be on the stack. */
void grpc_core_sweep(struct grpc_core *core);
/* Cancels calls whose deadline has passed, or that wait for too long. */
void grpc_core_tick(struct grpc_core *core, uint64_t now_ns);
/* Returns: when to tick; UINT64_MAX: never. */
uint64_t grpc_core_next_ns(const struct grpc_core *core);
const struct grpc_method *grpc_core_find(const struct grpc_core *core, struct str path);

/* ---- session.c: a connection ------------------------------------------------------------ */

/* Returns: ST_NO_MEMORY. Owns: grpc_session_close. */
enum status grpc_session_open(struct grpc_core *core, struct grpc_session *session,
                              struct error *err) __attribute__((warn_unused_result));
/* Bytes from the peer, all of them. */
void grpc_session_receive(struct grpc_session *session, struct str data);
/* Says that the end is near, lets calls at hand go on, and ends as soon as there are none. */
void grpc_session_drain(struct grpc_session *session);
/* GOAWAY with `err`, before anything was said: this connection is not served. */
void grpc_session_refuse(struct grpc_session *session, const struct error *err);
/* Ends the connection with an error code of HTTP/2, from anywhere. */
void grpc_session_fail(struct grpc_session *session, uint32_t code, const char *why);
/* Hands to nghttp2 what its callbacks may not: that the session failed. */
void grpc_session_tell(struct grpc_session *session);
/* May more be read? Not from a peer who takes no answers. */
bool grpc_session_wants_input(const struct grpc_session *session);
/* Is there something to collect? */
bool grpc_session_has_output(const struct grpc_session *session);
/* Collects what there is to be written, as much as fits. Until grpc_session_written nothing more
 * may be collected. Returns: false when there is nothing. */
bool grpc_session_output(struct grpc_session *session, struct grpc_output *output);
/* What was collected has left (or never will). */
void grpc_session_written(struct grpc_session *session);
/* Nothing is under way and nothing more will be said. */
bool grpc_session_is_over(const struct grpc_session *session);
/* The connection is gone: cancels all calls. What was collected is still the socket's, until
 * grpc_session_written. */
void grpc_session_close(struct grpc_session *session);

/* ---- frames.c: what nghttp2 calls ------------------------------------------------------- */

/* Returns: NULL when out of memory. */
nghttp2_session_callbacks *grpc_frames_callbacks(void);

/* ---- stream.c: a call's life ------------------------------------------------------------ */

/* Returns: NULL when out of memory. */
struct grpc_stream *grpc_stream_new(struct grpc_session *session, int32_t id);
/* Tells the method that it is over. */
void grpc_stream_free(struct grpc_stream *stream);
bool grpc_stream_is_over(const struct grpc_stream *stream);
void grpc_stream_set_answer(struct grpc_stream *stream, enum grpc_answer answer);
void grpc_stream_step(struct grpc_stream *stream, enum grpc_event event);
/* The method sees the call. */
void grpc_stream_give(struct grpc_stream *stream);
/* The head is complete: begins the call, or answers why not. */
void grpc_stream_begin(struct grpc_stream *stream);
/* Nobody waits any more, or it can't go on: ends it with `err`, and tells the method. */
void grpc_stream_cancel(struct grpc_stream *stream, const struct error *err);
/* Its time is over (core->timeouts). */
void grpc_stream_timed_out(struct grpc_stream *stream, enum grpc_wait wait);
/* nghttp2 has closed it, or the connection is gone. */
void grpc_stream_closed(struct grpc_stream *stream);
/* Has the sweep look at it. */
void grpc_stream_ask_sweep(struct grpc_stream *stream);
/* Arms the timeout for what it waits for now. */
void grpc_stream_await(struct grpc_stream *stream);

/* ---- head.c: fields in and out ---------------------------------------------------------- */

/* Keeps a field of the head. */
void grpc_head_add(struct grpc_stream *stream, struct str name, struct str value);
/* Reads what the head says of the call. Returns: ST_…, what is wrong; is_plain is set where it is
 * no gRPC at all. */
enum status grpc_head_check(struct grpc_stream *stream, struct error *err)
    __attribute__((warn_unused_result));
/* Submits the head of an answer; `trailers_only`: with the status, and nothing follows. */
void grpc_head_submit(struct grpc_stream *stream, bool trailers_only);
/* Submits the trailers, from within the data source. Returns: nghttp2's code. */
int grpc_head_submit_trailers(struct grpc_stream *stream);

/* ---- plain.c: who speaks no gRPC -------------------------------------------------------- */

/* Notes what is wrong; the answer leaves when the request has ended. */
void grpc_plain_refuse(struct grpc_stream *stream, const struct error *err);
void grpc_plain_answer(struct grpc_stream *stream);

/* ---- receive.c: messages in ------------------------------------------------------------- */

/* Bytes of DATA. */
void grpc_receive_data(struct grpc_stream *stream, struct str data);
/* END_STREAM came. */
void grpc_receive_end(struct grpc_stream *stream);
/* Gives the method what it asked for. */
void grpc_receive_deliver(struct grpc_stream *stream);
/* Nothing more is wanted; lets go of what is there. */
void grpc_receive_stop(struct grpc_stream *stream);
/* Bytes are missing that only the client can send. */
bool grpc_receive_waits(const struct grpc_stream *stream);

/* ---- send.c: messages out --------------------------------------------------------------- */

nghttp2_data_provider grpc_send_provider(struct grpc_stream *stream);
/* The status is decided: it leaves behind what is queued. */
void grpc_send_end(struct grpc_stream *stream);
/* Lets go of what is queued. */
void grpc_send_drop(struct grpc_stream *stream);
/* A message has left: its method may wait for that. */
void grpc_send_left(struct grpc_queue *queue);

#endif
