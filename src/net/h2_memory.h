/* The small blocks that nghttp2 takes and gives back for each call: kept for the next one, those of
 * one size in a list of their own. malloc keeps a handful of each size within reach; with many
 * connections that are served in one turn more than that are out at a time, and each of them then
 * costs a search. It refuses to keep large blocks, and more of the small than a bound.
 *
 * Thread: of one worker; no lock. With SLUICE_ARENA_EMULATE each block is a malloc of its own, so
 * that the address sanitizer sees all of them. */
#ifndef SLUICE_NET_H2_MEMORY_H
#define SLUICE_NET_H2_MEMORY_H

#include <stddef.h>

#include <nghttp2/nghttp2.h>

enum {
    H2_MEMORY_STEP = 64,     /* sizes are multiples of it */
    H2_MEMORY_LARGEST = 512, /* of what is kept */
    H2_MEMORY_MOST_KEPT = 512 << 10,
};

struct h2_block;

/* All zero: nothing is kept. */
struct h2_memory {
    struct h2_block *kept[H2_MEMORY_LARGEST / H2_MEMORY_STEP];
    size_t kept_bytes;
};

/* What nghttp2 is given. `memory` outlives all that is made with it. */
nghttp2_mem h2_memory_functions(struct h2_memory *memory);
/* Gives back what is kept; everything else must have come back. */
void h2_memory_fini(struct h2_memory *memory);

#endif
