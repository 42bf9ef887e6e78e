/* The endpoints that a request may be sent to, as whoever sent it says: the proxy's subset hint, or
 * the header by which conformance tests choose. It is read once and kept with the request; which
 * endpoints of the pool it means is found out at each pick. ("Endpoint Subset")
 *
 * Texts are read strictly: what is no address, or none of the pool, matches nothing. A subset
 * without any address is not the same as no subset: nothing can be picked from it.
 *
 * Thread: one at a time. */
#ifndef SLUICE_PICK_POOL_SUBSET_H
#define SLUICE_PICK_POOL_SUBSET_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "pick/pool/endpoint/address.h"

struct subset {
    struct endpoint_address *items; /* port 0: every port of this IP; in the request's arena */
    size_t n, cap;
    size_t n_unreadable; /* texts that are no address */
    bool any_port;       /* "IP" without a port is understood, and means all of its ports */
};

/* Empty. `any_port`: for the selection header, not for the subset hint. */
void subset_init(struct subset *subset, bool any_port);
/* Adds "IP:PORT", one element of a list. Returns: ST_NO_MEMORY. */
enum status subset_add(struct subset *subset, struct arena *arena, struct str text,
                       struct error *err) __attribute__((warn_unused_result));
/* Adds "IP:PORT,IP:PORT": blanks around the commas and empty elements are left out. */
enum status subset_add_list(struct subset *subset, struct arena *arena, struct str text,
                            struct error *err) __attribute__((warn_unused_result));

/* Does it name this endpoint? */
bool subset_has(const struct subset *subset, const struct endpoint_address *address);

#endif
