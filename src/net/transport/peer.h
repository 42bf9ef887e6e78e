/* What the server knows of the client of a connection: where it comes from, whether it reads, and
 * whether its inferences succeed. The connection owns it; its memory account, which lives until its
 * last request has ended, has a reference.
 *
 * Thread: the connection's worker. */
#ifndef SLUICE_NET_TRANSPORT_PEER_H
#define SLUICE_NET_TRANSPORT_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/event/fair_queue.h"

struct net_peer {
    size_t n_refs;
    uint64_t host;     /* address_peer_hash; 0: not known */
    bool has_read;     /* it has read a response: its requests get memory before those of others */
    bool has_inferred; /* one of its inferences has succeeded */
    /* Its inferences share no batch with those of others until then, because one failed; 0: none
     * has failed. */
    uint64_t batch_apart_until_ns;
};

/* Returns: NULL when out of memory. Owns: the caller, one reference. */
struct net_peer *net_peer_new(uint64_t host);
/* NULL is allowed. */
void net_peer_ref(struct net_peer *peer);
/* Drops a reference, and frees the peer with the last one. NULL is allowed. */
void net_peer_unref(struct net_peer *peer);

/* Returns: the connection, for the queues of helpers. NULL is allowed: no client. */
static inline struct fair_client net_peer_client(const struct net_peer *peer) {
    return (struct fair_client){peer ? peer->host : 0, (uint64_t)(uintptr_t)peer};
}

/* An inference succeeded. NULL is allowed. */
static inline void net_peer_note_success(struct net_peer *peer) {
    if (peer) {
        peer->has_inferred = true;
    }
}
/* Returns: whether an inference has succeeded, and none has failed. NULL, which is no client, is
 * trusted. */
static inline bool net_peer_is_trusted(const struct net_peer *peer) {
    return !peer || (peer->has_inferred && peer->batch_apart_until_ns == 0);
}

#endif
