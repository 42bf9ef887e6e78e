/* Which endpoint each session is bound to: a table of fixed size, in which a new session takes the
 * place of one that was not used for the longest time. Sessions are stored as keyed hashes, so that
 * no client can guess an id that has the place of another one.
 *
 * Thread: binding one at a time, finding any at any time. */
#ifndef SLUICE_PICK_POOL_PROFILE_SESSION_TABLE_H
#define SLUICE_PICK_POOL_PROFILE_SESSION_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/compiler.h"
#include "core/base/hash.h"

enum { SESSION_TABLE_PLACES = 1 << 18, SESSION_TABLE_WAYS = 8 };

/* A session is forgotten at the first sweep when it was not used for longer than `ttl_ns`; sweeps
 * are at the multiples of `sweep_ns`. */
struct session_expiry {
    uint64_t ttl_ns, sweep_ns; /* above 0 */
};

struct session_table;

/* `owner`: what the table is for, for session_table_owner. Returns: NULL when out of memory; a
 * table with one reference. */
struct session_table *session_table_new(uint64_t owner);
void session_table_ref(struct session_table *table);
/* The last reference frees it. */
void session_table_unref(struct session_table *table);
uint64_t session_table_owner(const struct session_table *table);

struct keyed_hash session_table_hash(const struct session_table *table, struct str session);
/* Returns: the endpoint's number; 0: the session is not bound. */
uint64_t session_table_find(const struct session_table *table, struct keyed_hash session,
                            uint64_t now_ns, const struct session_expiry *expiry);
/* The session's request is sent to this endpoint, whose number is not 0. One that is bound to
 * another endpoint stays so, unless `moves`. */
void session_table_bind(struct session_table *table, struct keyed_hash session, uint64_t endpoint,
                        bool moves, uint64_t now_ns, const struct session_expiry *expiry);

#endif
