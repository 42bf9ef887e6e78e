/* The server of the Model Invocation Protocol: reads packets over TCP and Unix sockets, one after
 * the other on each connection, answers pings and malformed packets itself, and hands inferences to
 * a handler. Errors are packets without payload; the reason is logged with the peer's address and
 * counted by code.
 *
 * Order of checks (MIP, "Errors"): version, subtype, kind, then the announced size against the
 * limits, before any allocation. After an error whose payload was read (or skipped within the
 * bound) the connection stays open; otherwise the server half-closes and drops input within a
 * bound, so that the peer can still read the error.
 *
 * An exchange is one inference. It lives on the worker of its connection, with one arena:
 *
 *     on_infer → … → mip_reply or mip_reply_error → on_end
 *
 * on_end is called exactly once, also when the peer disconnects before the response: then
 * `client_disconnected` was set, on_disconnect called, and mip_reply only releases. A peer that
 * only half-closes is taken for one that disconnected: on_disconnect is called without
 * `client_disconnected`, so that the handler cancels what it can; its response is still sent.
 *
 * Back pressure: the next packet of a connection waits until the response before it is sent, and a
 * peer that does not read its responses stops being read. The handler never waits. After
 * write_timeout_ns without progress the connection is closed.
 *
 * Thread: all callbacks and mip_reply on the exchange's worker. */
#ifndef SLUICE_NET_SERVER_MIP_SERVER_H
#define SLUICE_NET_SERVER_MIP_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/mip/packet.h"
#include "core/base/arena.h"
#include "core/base/piece.h"
#include "core/base/status.h"
#include "core/base/str.h"
#include "core/event/worker.h"
#include "net/server/limits.h"
#include "net/transport/address.h"
#include "net/transport/budget.h"

struct mip_server;

struct mip_exchange {
    struct arena *arena; /* freed with the exchange */
    struct worker *worker;
    /* Of the connection: what its responses hold. NULL once the client has disconnected. */
    struct memory_account *account;
    struct mip_header header;
    struct str payload;   /* complete, valid until on_end; not decoded yet */
    const void *listener; /* `user` of mip_server_listen */
    bool client_disconnected;
    void *user; /* for the handler's use */
};

/* A response: header, counts and items as pieces. The array is read during mip_reply only; the
 * bytes must stay valid until `release` is called, exactly once, on the exchange's worker. Back
 * pressure: the handler never waits; a peer that reads slowly delays `release`. */
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

/* Either of the two, once per exchange. */
void mip_reply(struct mip_exchange *exchange, const struct mip_answer *answer);
/* Sends an error packet with status_mip(err->status); the text goes to the log. */
void mip_reply_error(struct mip_exchange *exchange, const struct error *err);

struct mip_server_options {
    struct net_limits limits;
    struct net_budget *budget; /* payloads over it: MEMORY; connections: INTERNAL, close */
    struct mip_handler handler;
    struct worker *const *workers;
    size_t n_workers;
    struct worker *acceptor;
};

/* As in net/server/http/server.h. */
enum status mip_server_new(const struct mip_server_options *options, struct mip_server **out,
                           struct error *err) SLUICE_MUST_USE;
/* May be called for several addresses; their exchanges have `user` as listener. */
enum status mip_server_listen(struct mip_server *server, const struct address *address,
                              const void *user, struct address *bound,
                              struct error *err) SLUICE_MUST_USE;
/* The server below the protocol: net/server/shutdown.h, net/server/report.h. */
struct net_server *mip_server_net(struct mip_server *server);
void mip_server_free(struct mip_server *server);

#endif
