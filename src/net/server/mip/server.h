/* The server of the Model Invocation Protocol: reads packets over TCP and Unix sockets, one after
 * the other on each connection, answers pings and malformed packets itself, and hands inferences to
 * a handler. Errors leave as packets without payload; their reason goes to the log with the peer's
 * address, and to a counter by code.
 *
 * Order of checks (MIP, "Errors"): version, subtype, kind, then the announced size against the
 * limits, before anything is allocated. After an error whose payload was read whole (or skipped
 * within the bound) the connection stays open; otherwise the server half-closes and discards within
 * a bound, so that the peer can still read the error.
 *
 * An exchange is one inference. It lives on the worker of its connection, with one arena:
 *
 *     on_infer → … → mip_reply or mip_reply_error → on_end
 *
 * on_end is called exactly once, also when the peer goes away before the answer: then `gone` was
 * set, on_gone called, and mip_reply only releases.
 *
 * Thread: all callbacks and mip_reply on the exchange's worker. */
#ifndef SLUICE_NET_SERVER_MIP_SERVER_H
#define SLUICE_NET_SERVER_MIP_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/mip/packet.h"
#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/base/str.h"
#include "core/event/worker.h"
#include "core/tensor/tensor.h"
#include "net/transport/address.h"
#include "net/transport/budget.h"

struct mip_server;

struct mip_exchange {
    struct arena *arena; /* freed with the exchange */
    struct worker *worker;
    struct mip_header header;
    struct str payload;   /* whole; stays until on_end. Not yet decoded */
    const void *listener; /* the cookie that mip_server_listen was given */
    bool gone;            /* the peer went away */
    void *user;           /* the handler's own */
};

/* An answer: header, counts and items as pieces. The array is read during mip_reply only; the bytes
 * must stay until `release`, which is called exactly once on the exchange's worker. */
struct mip_answer {
    const struct piece *pieces;
    size_t n_pieces;
    void (*release)(void *user); /* may be NULL */
    void *user;
};

struct mip_handler {
    void *context;
    void (*on_infer)(struct mip_exchange *exchange, void *context);
    void (*on_disconnect)(struct mip_exchange *exchange, void *context); /* may be NULL */
    void (*on_end)(struct mip_exchange *exchange, void *context);        /* may be NULL */
};

/* Exactly one of the two, once per exchange. */
void mip_reply(struct mip_exchange *exchange, const struct mip_answer *answer);
/* An error packet with status_mip(err->status); the text goes to the log. */
void mip_reply_error(struct mip_exchange *exchange, const struct error *err);

/* Settings with the meaning they have for HTTP (program/model_server/settings.def). */
struct mip_limits {
    uint64_t max_body_size;     /* announced payload above it: MEMORY */
    uint64_t request_memory;    /* of one exchange's arena: MEMORY */
    uint64_t idle_timeout_ns;   /* between packets: close */
    uint64_t header_timeout_ns; /* first byte to end of header: close */
    uint64_t body_timeout_ns;   /* between two pieces of a payload: INTERNAL, close */
    uint64_t min_body_rate;     /* bytes/s on average after body_timeout: INTERNAL, close */
    uint64_t write_timeout_ns;  /* an answer of which nothing more is taken: close */
    uint64_t discard_size;      /* of a refused payload, read and dropped before closing */
};

struct mip_server_options {
    struct mip_limits limits;
    struct net_budget *budget; /* payloads past it: MEMORY; connections: INTERNAL, close */
    struct mip_handler handler;
    struct worker *const *workers;
    size_t n_workers;
    struct worker *acceptor;
};

/* As in net/server/http/server.h. */
enum status mip_server_new(const struct mip_server_options *options, struct mip_server **out,
                           struct error *err) __attribute__((warn_unused_result));
/* May be called for several addresses; connections accepted there carry `cookie`. */
enum status mip_server_listen(struct mip_server *server, const struct address *address,
                              const void *user, struct address *bound, struct error *err)
    __attribute__((warn_unused_result));
/* From now on a connection is closed after the answer at hand; idle ones are closed. */
void mip_server_drain(struct mip_server *server);
uint64_t mip_server_in_flight(const struct mip_server *server);
/* For net/server/report.h. */
struct net_server *mip_server_net(struct mip_server *server);
void mip_server_stop(struct mip_server *server, void (*done)(void *user), void *user);
void mip_server_free(struct mip_server *server);

#endif
