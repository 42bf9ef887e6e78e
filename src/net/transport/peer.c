/* The references on what is known of a client. */
#include "net/transport/peer.h"

#include <assert.h>
#include <stdlib.h>

struct net_peer *net_peer_new(uint64_t host) {
    struct net_peer *peer = calloc(1, sizeof(*peer));
    if (peer) {
        peer->n_refs = 1;
        peer->host = host;
    }
    return peer;
}

void net_peer_ref(struct net_peer *peer) {
    if (peer) {
        peer->n_refs++;
    }
}

void net_peer_unref(struct net_peer *peer) {
    if (peer) {
        assert(peer->n_refs > 0);
        if (--peer->n_refs == 0) {
            free(peer);
        }
    }
}
