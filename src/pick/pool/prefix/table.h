/* Which endpoints were lately sent prompts that begin like this one? A model server keeps what it
 * computed of a prompt's beginning; a request with the same beginning is answered sooner there. It
 * is an estimate: nobody asks the servers what they keep.
 *
 * A prompt is cut into blocks of one size; a block's hash has those before it in it
 * (chain.h), so that an entry for a hash stands for a whole beginning. Of each hash the
 * table has the endpoints that were sent it, PREFIX_MAX_HOSTS at most. Its memory is taken at once
 * and never grows: where it is full, what was not sent to anybody for the longest time goes, of
 * four entries that are looked at. Of one endpoint only so much is believed as its cache can hold
 * (`capacity`): what was sent there longer ago counts no more. An endpoint that may have lost its
 * cache is forgotten at once.
 *
 * Nothing waits: readers take no lock and writers neither. Where two write the same entry at the
 * same moment one of them may be lost, or a hint that is wrong be left; both cost a request its
 * advantage and no more.
 *
 * Thread: any. */
#ifndef SLUICE_PICK_POOL_PREFIX_TABLE_H
#define SLUICE_PICK_POOL_PREFIX_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/base/str.h"

enum { PREFIX_MAX_HOSTS = 7, PREFIX_MIN_BYTES = 2 << 20 };

struct prefix_table;

/* Takes at most `max_bytes`, PREFIX_MIN_BYTES at least; of memory that was never written to the
 * system gives none. Returns: ST_NO_MEMORY. Owns: *out until prefix_table_unref. */
enum status prefix_table_new(size_t max_bytes, struct prefix_table **out, struct error *err)
    __attribute__((warn_unused_result));
/* NULL is allowed. */
void prefix_table_unref(struct prefix_table *table);
/* Whoever uses it besides: it lives until each of them has freed it, too. */
struct prefix_table *prefix_table_ref(struct prefix_table *table);
/* What hashes begin with: no two tables have the same, and nobody outside knows it. */
uint64_t prefix_table_seed(const struct prefix_table *table);
/* Hashes that it can have. */
size_t prefix_table_capacity(const struct prefix_table *table);

/* ---- endpoints ------------------------------------------------------------------------------- */

/* One more endpoint, of which nothing is known. Returns: its number here, from 1; 0 where there are
 * 65,535 already: of that one nothing will ever be known. */
uint32_t prefix_table_add_host(struct prefix_table *table);
/* The number is free again. 0 is left alone. */
void prefix_table_remove_host(struct prefix_table *table, uint32_t host);
/* What it was sent is forgotten. 0 is left alone. */
void prefix_table_invalidate_host(struct prefix_table *table, uint32_t host);

/* ---- prompts --------------------------------------------------------------------------------- */

/* The endpoint was sent a prompt of these blocks. Only the last `capacity` blocks that it was sent
 * count from now on. */
void prefix_table_add(struct prefix_table *table, uint32_t host, uint32_t capacity,
                      const uint64_t *hashes, uint32_t n);

struct prefix_hit {
    uint32_t host;
    uint32_t n_blocks; /* of the prompt's first that it was sent, 1 at least */
};

/* Who was sent the beginning of this prompt. Returns: how many, at `out`; in no order. */
uint32_t prefix_table_find(const struct prefix_table *table, const uint64_t *hashes, uint32_t n,
                           struct prefix_hit out[PREFIX_MAX_HOSTS]);

/* ---- hashes of a prompt ---------------------------------------------------------------------- */

/* A prompt as the hashes of its blocks, each with those before it in it: equal hashes mean equal
 * beginnings, of the same model. The first has the model's name and the table's seed in it, so that
 * nobody outside can make prompts whose hashes meet.
 *
 * Thread: any. */
enum { PREFIX_MAX_BLOCK_BYTES = 4096 };

/* What is hashed of prompts. */
struct prefix_blocks {
    uint32_t block_bytes; /* 1 to PREFIX_MAX_BLOCK_BYTES */
    uint32_t most;        /* blocks; what is behind them does not count */
};

/* The hashes of the whole blocks of `head` and, behind it, `text`; both are as much of the prompt
 * as there is. `out` has room for blocks.most. Returns: how many. */
uint32_t prefix_chain_hash(struct prefix_blocks blocks, uint64_t seed, struct str model,
                           struct str head, struct str text, uint64_t *out);

#endif
