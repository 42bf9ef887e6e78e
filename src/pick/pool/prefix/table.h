/* The prefix table: which endpoints were recently sent prompts with the same beginning. A model
 * server caches what it computed for a prompt's beginning (its KV cache), and answers a request
 * with the same beginning sooner. The table is an estimate from the requests sent; the servers are
 * not queried.
 *
 * A prompt is cut into blocks of one size, and each block's hash includes the blocks before it, so
 * that one entry stands for a whole beginning. An entry has the endpoints that were sent it, at
 * most PREFIX_MAX_HOSTS. The table has several indexes, with capacities of their own: as of the
 * caches in an endpoint's GPU and in its main memory. They share the entries. Prompts of requests
 * in flight have a part of the table of their own, until it is known whether the endpoint took
 * them. The memory is allocated at once and never grows: a new entry replaces the least recently
 * written one of four. An endpoint's entries count only as far as its cache reaches (`capacity`):
 * blocks sent there earlier no longer match. An endpoint that may have lost its cache is
 * invalidated as a whole.
 *
 * Readers and writers take no lock and never wait. When two threads write the same entry at the
 * same time one write may be lost, or a wrong match be left; either costs a request its advantage,
 * and no more.
 *
 * Thread: any. */
#ifndef SLUICE_PICK_POOL_PREFIX_TABLE_H
#define SLUICE_PICK_POOL_PREFIX_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/base/str.h"

enum { PREFIX_MAX_HOSTS = 7, PREFIX_MIN_BYTES = 4 << 20 };
enum { PREFIX_MAX_INDEXES = 4 };

struct prefix_table;

/* Uses at most `max_bytes`, which is PREFIX_MIN_BYTES or more; the system provides memory as it is
 * first written. `seed`: of the hashes, for runs that repeat; 0: a random one, so that clients
 * cannot create collisions. Returns: ST_NO_MEMORY. Owns: *out until prefix_table_unref. */
enum status prefix_table_new(size_t max_bytes, uint64_t seed, struct prefix_table **out,
                             struct error *err) SLUICE_MUST_USE;
/* NULL is allowed. */
void prefix_table_unref(struct prefix_table *table);
/* Takes a reference. */
struct prefix_table *prefix_table_ref(struct prefix_table *table);
/* The seed of the hashes. */
uint64_t prefix_table_seed(const struct prefix_table *table);
/* The number of hashes that the table can hold. For its test, which fills it: what matches shows
 * less, as a prefix ends at the first hash that is gone. */
size_t prefix_table_capacity(const struct prefix_table *table);

/* ---- hosts ----------------------------------------------------------------------------------- */

/* Adds an endpoint without blocks. Returns: its host number, from 1; 0 when there are 65,535
 * already: nothing is recorded for that endpoint. */
uint32_t prefix_table_add_host(struct prefix_table *table);
/* Frees the host number. 0 is ignored. */
void prefix_table_remove_host(struct prefix_table *table, uint32_t host);
/* Invalidates the host's blocks. 0 is ignored. */
void prefix_table_invalidate_host(struct prefix_table *table, uint32_t host);

/* Returns: the blocks that the host was sent in an index, up to its capacity. Of 0: none. */
uint64_t prefix_table_host_blocks(const struct prefix_table *table, uint32_t host, uint32_t index);

/* ---- prompts --------------------------------------------------------------------------------- */

/* The blocks of a prompt in an index. */
struct prefix_key {
    const uint64_t *hashes;
    uint32_t n;
    uint32_t index; /* below PREFIX_MAX_INDEXES */
    uint64_t salt;  /* of the index and the model: blocks with different salts are unrelated */
};

/* The host was sent a prompt of these blocks. From now on only the last `capacity` blocks that it
 * was sent match. */
void prefix_table_add(struct prefix_table *table, uint32_t host, uint32_t capacity,
                      const struct prefix_key *key);

/* Blocks of a request in flight. Zeroed memory holds none. */
struct prefix_hold {
    struct prefix_key key;
    uint64_t owner;
};

/* A prompt of these blocks is on its way to the host: they match until prefix_table_unhold, unless
 * very many requests in flight replace them. The hashes must stay until then. */
void prefix_table_hold(struct prefix_table *table, uint32_t host, const struct prefix_key *key,
                       struct prefix_hold *out);
void prefix_table_unhold(struct prefix_table *table, struct prefix_hold *hold);

struct prefix_hit {
    uint32_t host;
    uint32_t n_blocks; /* of the prompt's first blocks, 1 or more */
};

/* Finds the hosts that were sent the beginning of this prompt, or have it in flight. Returns: their
 * number, at `out`, in no order. */
uint32_t prefix_table_find(const struct prefix_table *table, const struct prefix_key *key,
                           struct prefix_hit out[PREFIX_MAX_HOSTS]);

#endif
