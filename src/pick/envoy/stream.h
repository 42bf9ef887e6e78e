/* A request in Envoy: the filter's calls go to its session as parts of a message
 * (pick_session_on_part), and what the session responds is done by calls of Envoy.
 *
 * The pick is made at the headers, or as soon as enough of the body was received: until then the
 * headers stay with Envoy, and it buffers the body. A body is only read here, and copied only where
 * the model in it is renamed. A long one is read in turns, between which the worker does other
 * things: what was not read waits in Envoy's buffer.
 *
 * A response of the picker itself is sent when the session has returned, as it passes the filter.
 * Envoy may destroy the filter within any call; the stream is freed when the outermost one returns.
 *
 * Thread: the worker's. */
#ifndef SLUICE_PICK_ENVOY_STREAM_H
#define SLUICE_PICK_ENVOY_STREAM_H

#include "pick/envoy/abi.h"
#include "pick/envoy/worker.h"

struct envoy_reply;

struct envoy_stream {
    struct pick_stream shared; /* the user of the session's callbacks */
    struct envoy_worker *worker;
    void *filter; /* Envoy's */
    struct arena *arena;
    struct envoy_reply *reply; /* of the picker itself; NULL: none */
    struct pick_edits edits;   /* of the body, to be done; n 0: none */
    void *scheduler;           /* NULL: it has not waited */
    TAILQ_ENTRY(envoy_stream) waiting_link, resumed_link, turn_link;
    uint64_t n_expected;          /* the request's content-length; 0: unknown, or no body */
    uint64_t n_received;          /* bytes of the request's body */
    uint64_t n_passed;            /* of them, those that the session has seen */
    uint64_t n_sent;              /* of them, those that have left Envoy's buffer */
    uint64_t turn_bytes, turn_ns; /* of them, those in the present turn; the time that they took */
    unsigned depth;               /* of our functions that run */
    int code;                     /* the gRPC status of an end without a reply */
    bool is_waiting, is_resumed;
    bool waits_for_turn; /* the rest of the body is read later */
    bool has_turn;       /* it is in the worker's list */
    bool is_stopped;     /* Envoy waits for envoy_stream_continue */
    bool is_stopped_all; /* likewise, and passes what it has kept to the stream then */
    bool is_body_ended;  /* the request's last part was received, and not passed */
    bool has_trailers;   /* likewise its trailers */
    bool has_replied;    /* the reply was sent */
    bool has_response;   /* a part of the response was passed */
    bool is_destroyed;
};

/* Returns: NULL when out of memory. Owns: Envoy, until envoy_stream_destroy. */
struct envoy_stream *envoy_stream_new(struct envoy_worker *worker, void *filter);
void envoy_stream_destroy(struct envoy_stream *stream);

enum envoy_headers_status envoy_stream_on_request_headers(struct envoy_stream *stream, bool is_end);
enum envoy_body_status envoy_stream_on_request_body(struct envoy_stream *stream, bool is_end);
enum envoy_trailers_status envoy_stream_on_request_trailers(struct envoy_stream *stream);
void envoy_stream_on_response_headers(struct envoy_stream *stream, bool is_end);
void envoy_stream_on_response_body(struct envoy_stream *stream, bool is_end);
void envoy_stream_on_response_trailers(struct envoy_stream *stream);
/* The stream's scheduler has called. */
void envoy_stream_on_scheduled(struct envoy_stream *stream);

/* For worker.c: it has a turn. */
void envoy_stream_begin_turn(struct envoy_stream *stream);
/* Likewise: the session has gone on without a part of the request. */
void envoy_stream_note_resumed(struct envoy_stream *stream);
/* Goes on with the request where it is no longer queued. May destroy the stream. */
void envoy_stream_continue(struct envoy_stream *stream);

#endif
