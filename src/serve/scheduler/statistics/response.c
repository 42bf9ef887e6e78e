/* Blocks of cells, published once and kept for good. */
#include "serve/scheduler/statistics/response.h"

#include <stdbool.h>
#include <stdlib.h>

enum { PER_BLOCK = STATISTICS_RESPONSE_BLOCK, N_BLOCKS = STATISTICS_RESPONSES / PER_BLOCK };

struct cells {
    _Atomic uint64_t n[RESPONSE_OUTCOMES], ns[RESPONSE_OUTCOMES];
    _Atomic uint64_t infer_ns, output_ns; /* of those that are not cancelled */
};

struct statistics_response_block {
    struct cells cells[PER_BLOCK];
};

static struct statistics_response_block *load_block(const struct statistics_responses *responses,
                                                    size_t i) {
    return atomic_load_explicit(&responses->blocks[i], memory_order_acquire);
}

/* Returns: NULL when out of memory. */
static struct statistics_response_block *block_at(struct statistics_responses *responses,
                                                  size_t i) {
    struct statistics_response_block *block = load_block(responses, i);
    if (block) {
        return block;
    }
    struct statistics_response_block *made = calloc(1, sizeof(*made));
    if (made &&
        atomic_compare_exchange_strong_explicit(&responses->blocks[i], &block, made,
                                                memory_order_acq_rel, memory_order_acquire)) {
        return made;
    }
    free(made);
    return block; /* another thread's; NULL where memory is out */
}

static void cell_add(_Atomic uint64_t *cell, uint64_t n) {
    atomic_fetch_add_explicit(cell, n, memory_order_relaxed);
}

void statistics_response_add(struct statistics_responses *responses, uint64_t place,
                             enum statistics_outcome outcome, uint64_t infer_ns,
                             uint64_t output_ns) {
    struct statistics_response_block *block =
        place < STATISTICS_RESPONSES ? block_at(responses, place / PER_BLOCK) : NULL;
    if (!block) {
        return;
    }
    struct cells *cells = &block->cells[place % PER_BLOCK];
    bool has_outputs = outcome == RESPONSE_SUCCESS || outcome == RESPONSE_FAIL;
    cell_add(&cells->n[outcome], 1);
    cell_add(&cells->ns[outcome], infer_ns + (has_outputs ? output_ns : 0));
    cell_add(&cells->infer_ns, outcome == RESPONSE_CANCEL ? 0 : infer_ns);
    cell_add(&cells->output_ns, has_outputs ? output_ns : 0);
}

static struct statistics_time read_time(const struct cells *cells, enum statistics_outcome of) {
    return (struct statistics_time){atomic_load_explicit(&cells->n[of], memory_order_relaxed),
                                    atomic_load_explicit(&cells->ns[of], memory_order_relaxed)};
}

static struct statistics_response read_cells(const struct cells *cells) {
    struct statistics_response out = {
        .success = read_time(cells, RESPONSE_SUCCESS),
        .fail = read_time(cells, RESPONSE_FAIL),
        .empty = read_time(cells, RESPONSE_EMPTY),
        .cancel = read_time(cells, RESPONSE_CANCEL),
    };
    out.output.count = out.success.count + out.fail.count;
    out.output.ns = atomic_load_explicit(&cells->output_ns, memory_order_relaxed);
    out.infer.count = out.output.count + out.empty.count;
    out.infer.ns = atomic_load_explicit(&cells->infer_ns, memory_order_relaxed);
    return out;
}

size_t statistics_responses_read(const struct statistics_responses *responses, struct arena *arena,
                                 struct statistics_response **out) {
    size_t n_blocks = N_BLOCKS, n = 0;
    while (n_blocks > 0 && !load_block(responses, n_blocks - 1)) {
        n_blocks--;
    }
    *out = arena_calloc(arena, n_blocks * PER_BLOCK, sizeof(**out));
    for (size_t i = 0; *out && i < n_blocks * PER_BLOCK; i++) {
        const struct statistics_response_block *block = load_block(responses, i / PER_BLOCK);
        if (block) {
            (*out)[i] = read_cells(&block->cells[i % PER_BLOCK]);
        }
        n = (*out)[i].infer.count + (*out)[i].cancel.count > 0 ? i + 1 : n;
    }
    return n;
}

void statistics_responses_free(struct statistics_responses *responses) {
    for (size_t i = 0; i < N_BLOCKS; i++) {
        free(load_block(responses, i));
    }
}
