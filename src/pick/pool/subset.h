/* A subset: the endpoints that a request may be sent to, from the proxy's subset hint or the
 * selection header of conformance tests. It is parsed once per request and looked up in the pool at
 * each pick. Clause: "Endpoint Subset".
 *
 * A text that is not an address, or that names no endpoint of the pool, matches nothing. An empty
 * subset is different from no subset: no endpoint can be picked from it.
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
    size_t n_unreadable; /* number of texts that are not addresses */
    bool any_port;       /* "IP" without a port is accepted, and means all of its ports */
};

/* Makes it empty. `any_port`: for the selection header, not for the subset hint. */
void subset_init(struct subset *subset, bool any_port);
/* Adds "IP:PORT", one element of a list. Returns: ST_NO_MEMORY. */
enum status subset_add(struct subset *subset, struct arena *arena, struct str text,
                       struct error *err) SLUICE_MUST_USE;
/* Adds "IP:PORT,IP:PORT"; blanks around commas and empty elements are skipped. */
enum status subset_add_list(struct subset *subset, struct arena *arena, struct str text,
                            struct error *err) SLUICE_MUST_USE;

/* Whether an item matches this endpoint. */
bool subset_has(const struct subset *subset, const struct endpoint_address *address);

#endif
