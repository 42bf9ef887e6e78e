/* The answers of a decoupled model by their place: of all requests the first ones, the second ones,
 * and so on. Counted by whichever thread answers, so with atomic adds; room is made as it is
 * needed. */
#ifndef SLUICE_SERVE_SCHEDULER_STATISTICS_RESPONSE_H
#define SLUICE_SERVE_SCHEDULER_STATISTICS_RESPONSE_H

#include <stdatomic.h>
#include <stdint.h>

#include "serve/scheduler/statistics/statistics.h"

/* What became of an answer. */
enum statistics_outcome {
    RESPONSE_SUCCESS,
    RESPONSE_FAIL,
    RESPONSE_EMPTY,  /* it only said that nothing more follows */
    RESPONSE_CANCEL, /* nobody waited for it any more */
    RESPONSE_OUTCOMES,
};

enum { STATISTICS_RESPONSES = 4096, STATISTICS_RESPONSE_BLOCK = 64 };

struct statistics_response_block;

/* Zeroed memory is ready to count. */
struct statistics_responses {
    _Atomic(struct statistics_response_block *)
        blocks[STATISTICS_RESPONSES / STATISTICS_RESPONSE_BLOCK];
};

/* The answer at `place`, from 0, has been given: it was `infer_ns` since the one before it (or
 * since the execution began), and took `output_ns` to be taken over, waits for a slow reader
 * included. Places from STATISTICS_RESPONSES on are not counted. Thread: any. */
void statistics_response_add(struct statistics_responses *responses, uint64_t place,
                             enum statistics_outcome outcome, uint64_t infer_ns,
                             uint64_t output_ns);
/* Returns: of which places there is something; *out is in `arena`, NULL when out of memory. */
size_t statistics_responses_read(const struct statistics_responses *responses, struct arena *arena,
                                 struct statistics_response **out);
/* Nobody counts any more. */
void statistics_responses_free(struct statistics_responses *responses);

#endif
