/* The inside of the gRPC server: an HTTP/2 connection as nghttp2 sees it, and the calls on it. Sans
 * I/O: bytes go in (grpc_session_receive), events go to the methods, bytes come out
 * (grpc_session_output); sockets are grpc_server.c's. For the grpc_*.c files of this room only.
 *
 * Who may free what: a stream is freed by grpc_core_sweep, which runs when no callback of nghttp2
 * and no step of a method is on the stack, once the method has finished it, nghttp2 has closed it,
 * and no byte of it is on its way to the socket. */
#ifndef SLUICE_NET_GRPC_SESSION_H
#define SLUICE_NET_GRPC_SESSION_H

#include <nghttp2/nghttp2.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loop/deadlines.h"
#include "net/body.h"
#include "net/grpc_server.h"
#include "net/h2_abuse.h"
#include "wire/grpc_text.h"

struct grpc_session;

/* A message on its way in, and until its method frees it. */
struct grpc_in {
    struct grpc_message message;
    struct body body;
    bool own_arena;
    bool freed;
};

/* What all connections of a worker share. */
struct grpc_core {
    const struct grpc_server_options *options;
    struct worker *worker;
    struct body_pool *pool;
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    struct deadlines deadlines;
    struct grpc_stream *ended; /* to be looked at by the next sweep */
    size_t n_streams;          /* alive, whether or not their connection is */
    _Atomic uint64_t *n_calls; /* in flight, for others to see */
    /* Something is to be written, or swept, when this turn ends. */
    void (*ask_turn)(struct grpc_core *core, struct grpc_session *session);
    void *cookie;
};

/* A message on its way out. */
struct grpc_outgoing {
    struct grpc_outgoing *next;
    struct grpc_stream *stream;
    void (*release)(void *cookie);
    void *cookie;
    bool on_heap;
    char prefix[GRPC_PREFIX_BYTES];
    size_t n_pieces;
    struct piece pieces[]; /* the prefix first */
};

/* How far the receiving of messages is. */
enum grpc_receiving {
    GRPC_RECEIVING_PREFIX,
    GRPC_RECEIVING_BODY,
    GRPC_RECEIVED,      /* a whole message waits for the method */
    GRPC_RECEIVING_END, /* no more, or not wanted */
};

struct grpc_stream {
    struct grpc_call call; /* what the method sees */
    struct grpc_core *core;
    struct grpc_session *session;    /* NULL: the connection is gone */
    struct grpc_stream *prev, *next; /* of the session */
    struct grpc_stream *ended_next;
    int32_t id;
    struct deadline deadline;
    /* the head, while it comes */
    struct grpc_field *fields;
    size_t n_fields, cap_fields;
    size_t head_bytes;
    struct str http_method, path, content_type;
    /* messages in */
    enum http_coding coding; /* of compressed ones */
    enum grpc_receiving receiving;
    char prefix[GRPC_PREFIX_BYTES];
    size_t prefix_len;
    struct grpc_in *in; /* the message at hand */
    char *stash;        /* bytes behind it, while it waits */
    size_t stash_at, stash_len, stash_cap;
    unsigned n_wanted; /* messages the method asked for */
    /* messages out */
    struct grpc_outgoing *out, *out_last;
    size_t out_piece, out_at; /* how far the first one has been collected */
    size_t out_bytes;
    enum http_coding answer_coding;
    struct grpc_field *set, *trailers; /* of the method's, copied */
    size_t n_set, n_trailers;
    int status; /* grpc-status */
    struct str message;
    bool head_over;    /* oversized, told to the client */
    bool begun;        /* the method has seen it */
    bool remote_ended; /* END_STREAM came */
    bool half_closed;  /* ... and the method knows */
    bool ending;       /* the status is decided */
    bool finished;     /* grpc_finish was called, or the method never saw the call */
    bool submitted;    /* an answer's head is with nghttp2 */
    bool deferred;     /* nghttp2 waits for more to send */
    bool answered;     /* END_STREAM was sent */
    bool closed;       /* by nghttp2, or with the connection */
    bool over;         /* GRPC_END was given */
    bool sweeping;     /* in core->ended */
    bool counted;
    bool in_read; /* messages are being handed over: on the stack */
};

struct grpc_session {
    struct grpc_core *core;
    nghttp2_session *h2;
    struct grpc_stream *streams;
    size_t n_streams;
    struct h2_bucket control, resets;
    struct grpc_outgoing *sent; /* collected for the write at hand; released when it is done */
    bool writing;               /* what was collected has not left yet */
    bool draining;
    bool failed; /* a call of nghttp2 said so: the connection ends after what it has to say */
    bool asked;  /* a turn was asked for; the driver's to clear */
    struct grpc_output *output; /* while collecting */
    void *owner;                /* the driver's */
};

/* ---- grpc_core.c ----------------------------------------------------------------------------- */

/* Fills in zeroed memory, in which pool, n_calls, ask_turn and cookie are set. Returns:
 * ST_NO_MEMORY. Owns: grpc_core_fini. */
enum status grpc_core_init(struct grpc_core *core, const struct grpc_server_options *options,
                           struct worker *worker, struct error *err)
    __attribute__((warn_unused_result));
void grpc_core_fini(struct grpc_core *core);
/* Frees what is over. No callback that knows a stream may be on the stack. */
void grpc_core_sweep(struct grpc_core *core);
/* Cancels calls whose deadline has passed. Returns: when to come again; UINT64_MAX: never. */
uint64_t grpc_core_tick(struct grpc_core *core, uint64_t now_ns);

/* ---- grpc_session.c: a connection ------------------------------------------------------------ */

/* Returns: NULL when out of memory. */
nghttp2_session_callbacks *grpc_session_callbacks(void);

/* Returns: ST_NO_MEMORY. Owns: grpc_session_close. */
enum status grpc_session_open(struct grpc_core *core, struct grpc_session *session,
                              struct error *err) __attribute__((warn_unused_result));
/* Bytes from the peer, all of them. Returns: ST_BAD_REQUEST when it is not to be served any more:
 * what output has is sent, then it is closed. */
enum status grpc_session_receive(struct grpc_session *session, struct str data, struct error *err)
    __attribute__((warn_unused_result));
/* No new calls from now on; those at hand go on. */
void grpc_session_drain(struct grpc_session *session);
/* GOAWAY with NO_ERROR, to close an idle connection. */
void grpc_session_say_goodbye(struct grpc_session *session);
/* Nothing is under way and nothing more will be said. */
bool grpc_session_is_over(const struct grpc_session *session);
/* The connection is gone: cancels all calls. */
void grpc_session_close(struct grpc_session *session);

/* ---- grpc_output.c: bytes out ---------------------------------------------------------------- */

enum { GRPC_OUTPUT_PIECES = 256, GRPC_OUTPUT_BYTES = 32768, GRPC_OUTPUT_COPY = 1024 };

/* What is to be written next: `n` pieces; small things lie in `bytes`. */
struct grpc_output {
    struct piece pieces[GRPC_OUTPUT_PIECES];
    size_t n;
    size_t n_bytes;
    size_t used; /* of bytes */
    char bytes[GRPC_OUTPUT_BYTES];
};

/* Collects what there is to be written, as much as fits. Until grpc_session_written nothing more
 * may be collected. Returns: false when there is nothing. */
bool grpc_session_output(struct grpc_session *session, struct grpc_output *output);
/* What was collected has left (or never will). */
void grpc_session_written(struct grpc_session *session);
/* A DATA frame: its head (9 bytes) and `n_bytes` of what the stream has queued. Returns: false when
 * there is no room for it now. */
bool grpc_output_data(struct grpc_output *output, struct grpc_stream *stream, const uint8_t *head,
                      size_t n_bytes);
/* Is there something to collect? */
bool grpc_session_has_output(const struct grpc_session *session);

/* ---- grpc_stream.c: a call's life ------------------------------------------------------------ */

/* Returns: NULL when out of memory. */
struct grpc_stream *grpc_stream_new(struct grpc_session *session, int32_t id);
/* Tells the method that it is over. */
void grpc_stream_free(struct grpc_stream *stream);
/* The method sees the call. */
void grpc_stream_give(struct grpc_stream *stream);
/* The head is complete: begins the call, or answers why not. */
void grpc_stream_begin(struct grpc_stream *stream);
/* Nobody waits any more. */
void grpc_stream_cancel(struct grpc_stream *stream, enum status status, const char *why);
/* nghttp2 has closed it, or the connection is gone. */
void grpc_stream_closed(struct grpc_stream *stream);
/* An answer before, or without, the method. */
void grpc_stream_refuse(struct grpc_stream *stream, const struct error *err);
/* Has the sweep look at it. */
void grpc_stream_ask_sweep(struct grpc_stream *stream);
void grpc_stream_step(struct grpc_stream *stream, enum grpc_event event);

/* ---- grpc_head.c: fields in and out ---------------------------------------------------------- */

/* Returns: false when the field does not fit. */
bool grpc_head_add(struct grpc_stream *stream, struct str name, struct str value);
/* Reads what the head says of the call. Returns: ST_…, what is wrong. `http` is the HTTP status of
 * what is no gRPC at all, else 200. */
enum status grpc_head_check(struct grpc_stream *stream, int *http, struct error *err)
    __attribute__((warn_unused_result));
/* Submits the head of an answer; `trailers_only`: with the status, and nothing follows. */
void grpc_head_submit(struct grpc_stream *stream, bool trailers_only, int http);
/* Submits the trailers, from within the data source. Returns: nghttp2's code. */
int grpc_head_submit_trailers(struct grpc_stream *stream);

/* ---- grpc_receive.c: messages in ------------------------------------------------------------- */

/* Bytes of DATA. */
void grpc_receive_data(struct grpc_stream *stream, struct str data);
/* END_STREAM came. */
void grpc_receive_end(struct grpc_stream *stream);
/* Gives the method what it asked for. */
void grpc_receive_deliver(struct grpc_stream *stream);
/* Nothing more is wanted; lets go of what is there. */
void grpc_receive_stop(struct grpc_stream *stream);

/* ---- grpc_send.c: messages out --------------------------------------------------------------- */

nghttp2_data_provider grpc_send_provider(struct grpc_stream *stream);
/* The bytes to be collected next, not past the end of a piece. */
struct piece grpc_send_next(const struct grpc_stream *stream);
/* So many of them were. */
void grpc_send_advance(struct grpc_stream *stream, size_t n_bytes);
/* Lets go of what is queued and of which nothing was collected. */
void grpc_send_drop(struct grpc_stream *stream);
void grpc_outgoing_release(struct grpc_outgoing *list);

#endif
