/* The inside of the gRPC client: calls, an HTTP/2 connection as nghttp2 sees it, and what all
 * connections of a client share. Sans I/O: bytes go in (grpc_client_session_receive), events go to
 * the callers, bytes come out (grpc_client_session_collect_output); sockets are conn.c's. For
 * the grpc_client*.c files of this room only.
 *
 * What runs inside what: GRPC_CLIENT_HEAD and _MESSAGE run inside nghttp2's callbacks, and what
 * they call submits to nghttp2 right there, which it allows. GRPC_CLIENT_END and the freeing of
 * calls are grpc_client_core_sweep's, with nothing of ours on the stack. nghttp2 is not told to end
 * a session from within its callbacks: grpc_client_session_fail waits for output.
 *
 * Who may free what: a call is freed when its caller was told of its end, nghttp2 has closed its
 * stream, and no byte of it is on its way to the socket. */
#ifndef SLUICE_NET_CLIENT_GRPC_SESSION_H
#define SLUICE_NET_CLIENT_GRPC_SESSION_H

#include "core/event/timer.h"
#include "net/client/grpc/grpc_client.h"
#include "net/transport/grpc/fields.h"
#include "net/transport/grpc/receiver.h"
#include "net/transport/grpc/send_queue.h"
#include "net/transport/h2_mem.h"

struct grpc_client_session;
struct grpc_client_stream;

/* Calls, in the order of their coming. */
struct grpc_client_list {
    struct grpc_client_stream *first, *last;
};

/* What all connections of a client share. */
struct grpc_client_core {
    struct grpc_client_limits limits; /* all of them set */
    struct str authority;             /* of requests */
    bool is_tls;                      /* which is the scheme of requests */
    struct arena_cache *arenas;
    struct net_budget budget;
    struct body_pool pool;
    struct grpc_receiver_options receiver_options;
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    struct small_blocks blocks; /* nghttp2's, and of what is queued */
    struct timer_heap deadlines;
    struct grpc_client_list waiting;  /* calls for a connection */
    struct grpc_client_stream *ended; /* to be looked at by the next sweep */
    struct grpc_output *spare_output; /* one that nobody fills */
    size_t n_alive;                   /* calls */
    uint64_t now_ns;                  /* while `running` */
    bool running;                     /* receive, output or tick is on the stack */
    /* Something is to be written, begun or swept when this turn ends. */
    void (*schedule_deferred)(struct grpc_client_core *core);
};

/* Where a call is. call.c's setter is the only one that changes it. */
enum grpc_client_state {
    GRPC_CLIENT_WAITING,    /* for a connection */
    GRPC_CLIENT_OPEN,       /* nghttp2 has it */
    GRPC_CLIENT_STATUS_SET, /* how it ends is known; GRPC_CLIENT_END is owed */
    GRPC_CLIENT_NOTIFIED,   /* the caller knows; what is left is nghttp2's and the socket's */
};

struct grpc_client_stream {
    struct grpc_client_call call; /* what the caller sees */
    struct grpc_client_core *core;
    struct grpc_client_session *session; /* NULL: none yet, or it is gone */
    struct grpc_client_list *list;       /* that it is in: those that wait, or a session's */
    struct grpc_client_stream *prev, *next;
    struct grpc_client_stream *ended_next;
    grpc_client_event_cb *on_event;
    struct str path;
    struct grpc_fields set; /* metadata to be sent */
    struct grpc_fields head, trailers;
    struct grpc_receiver in;
    struct grpc_send_queue out;
    struct timer_node deadline;
    uint64_t deadline_ns; /* 0: none */
    int32_t id;
    int http_status;      /* 0: not seen */
    uint8_t state;        /* enum grpc_client_state */
    bool streams;         /* any number of messages */
    bool wait_for_ready;  /* for a connection, however many can't be made */
    bool half_closed;     /* the caller sends no more */
    bool end_stream_sent; /* END_STREAM is with nghttp2 */
    bool head_received;   /* the head was read, or stands for all of the answer */
    bool head_too_large;  /* fields that do not fit */
    bool remote_ended;    /* END_STREAM came */
    bool deferred;        /* nghttp2 waits for more to send */
    bool closed;          /* by nghttp2, or it never had it, or with the connection */
    bool in_sweep_list;   /* in core->ended */
    bool delivering;      /* messages are being handed over: on the stack */
    bool in_callback;     /* the caller's step is on the stack */
};

struct grpc_client_session {
    struct grpc_client_core *core;
    nghttp2_session *h2; /* NULL: closed */
    struct grpc_client_list streams;
    size_t n_open;                          /* calls that nghttp2 has not closed */
    struct grpc_client_stream *head_stream; /* whose head, or trailers, are being read */
    size_t head_bytes;
    struct grpc_write_batch write_batch;
    struct error error;        /* why it ended; ST_OK: it has not */
    struct error goaway_error; /* what the server said when it went away; ST_OK: nothing bad */
    uint32_t error_code;       /* of HTTP/2, for the server */
    char first[8];             /* bytes of the connection, to know a server of something else by */
    size_t n_first;
    bool settings_received;   /* the server's first SETTINGS came */
    bool call_answered;       /* a call was answered */
    bool going_away;          /* no call begins any more */
    bool terminate_submitted; /* nghttp2 knows of the error */
    bool needs_io;            /* something may have to be said, or it is over */
};

/* ---- session.c: what connections share ------------------------------------------------------- */

/* Fills in zeroed memory, in which limits (defaults are filled in), authority, arenas and ask_turn
 * are set. Returns: ST_NO_MEMORY. Owns: grpc_client_core_fini. */
enum status grpc_client_core_init(struct grpc_client_core *core, struct error *err)
    __attribute__((warn_unused_result));
void grpc_client_core_fini(struct grpc_client_core *core);
uint64_t grpc_client_core_now(const struct grpc_client_core *core);
/* Begins waiting calls on that session, as long as it has room. */
void grpc_client_core_dispatch(struct grpc_client_core *core, struct grpc_client_session *session);
/* Ends calls that wait; those that `wait` for longer only if `all`. */
void grpc_client_core_fail_waiting(struct grpc_client_core *core, const struct error *err,
                                   bool all);
/* Tells callers of the end of their calls, and frees what is over. */
void grpc_client_core_sweep(struct grpc_client_core *core);
/* Ends calls whose deadline has passed. */
void grpc_client_core_run_timers(struct grpc_client_core *core, uint64_t now_ns);
/* Returns: when to tick; UINT64_MAX: never. */
uint64_t grpc_client_core_next_timer_ns(const struct grpc_client_core *core);

/* ---- session.c: a connection ----------------------------------------------------------------- */

/* Fills in zeroed memory. Returns: ST_NO_MEMORY. Owns: grpc_client_session_close. */
enum status grpc_client_session_open(struct grpc_client_core *core,
                                     struct grpc_client_session *session, struct error *err)
    __attribute__((warn_unused_result));
/* Bytes from the server, all of them. */
void grpc_client_session_receive(struct grpc_client_session *session, struct str data);
/* May another call begin? */
bool grpc_client_session_can_start_call(const struct grpc_client_session *session);
bool grpc_client_session_has_output(const struct grpc_client_session *session);
/* Collects what there is to be written, as much as fits. Until grpc_client_session_on_written
 * nothing more may be collected. Returns: false when there is nothing. */
bool grpc_client_session_collect_output(struct grpc_client_session *session,
                                        struct grpc_output *output);
/* What was collected has left (or never will). */
void grpc_client_session_on_written(struct grpc_client_session *session);
/* Nothing is under way and nothing more will be said: what is left is to close it. */
bool grpc_client_session_is_done(const struct grpc_client_session *session);
/* Says goodbye: no call begins any more. */
void grpc_client_session_send_goaway(struct grpc_client_session *session);
/* The connection is gone: its calls end with `err`, or why it ended before. What was collected is
 * still the socket's, until grpc_client_session_on_written. */
void grpc_client_session_close(struct grpc_client_session *session, const struct error *err);
/* Why it ended, or is going to: what is known, or else `err`. */
const struct error *grpc_client_session_close_reason(const struct grpc_client_session *session,
                                                     const struct error *err);
/* Something is to be said. */
void grpc_client_session_schedule_write(struct grpc_client_session *session);

/* ---- call.c ---------------------------------------------------------------------------------- */

enum status grpc_client_stream_new(struct grpc_client_core *core,
                                   const struct grpc_client_call_options *options,
                                   struct grpc_client_stream **out, struct error *err)
    __attribute__((warn_unused_result));
/* Begins one that waits on that session. Returns: false when the session takes no more: it still
 * waits. */
bool grpc_client_stream_start(struct grpc_client_stream *stream,
                              struct grpc_client_session *session);
/* How it ends: with `err`, or as the server says (err->status ST_OK, ST_REFUSED; `code`). Only the
 * first decision counts. */
void grpc_client_stream_set_status(struct grpc_client_stream *stream, int code,
                                   const struct error *err);
/* nghttp2 has closed it, or the connection is gone. */
void grpc_client_stream_closed(struct grpc_client_stream *stream);
/* As far as it is possible now: tells its caller of the end, frees it. */
void grpc_client_stream_sweep(struct grpc_client_stream *stream);
/* A message has left. */
void grpc_client_stream_on_message_sent(struct grpc_send_queue *queue);

/* ---- call.c: what the server sent ------------------------------------------------------------ */

/* A field of the head, or the trailers. */
void grpc_client_response_add_field(struct grpc_client_stream *stream, struct str name,
                                    struct str value);
/* All of them; `last`: END_STREAM came with them. */
void grpc_client_response_finish_head(struct grpc_client_stream *stream, bool last);
/* Bytes of DATA. */
void grpc_client_response_add_data(struct grpc_client_stream *stream, struct str data);
/* END_STREAM came. */
void grpc_client_response_on_end_stream(struct grpc_client_stream *stream);
/* It was reset, or the connection told that it is not served. */
void grpc_client_response_on_reset(struct grpc_client_stream *stream, uint32_t code);

#endif
