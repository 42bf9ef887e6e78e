/* Workloads that are replayed: the texts of prompts, and which requests arrive when.
 *
 * Thread: any; a workload that was made is not changed. */
#ifndef SLUICE_BENCH_SIMULATE_WORKLOAD_H
#define SLUICE_BENCH_SIMULATE_WORKLOAD_H

#include <stdint.h>

#include "core/base/str.h"

/* Four bytes are a token, as for the picker. */
enum { WORKLOAD_TOKEN_BYTES = 4 };

enum sim_workload_kind {
    /* 150 groups of 5 prompts: 6,000 tokens that a group has in common and a question of 1,200; the
     * answer has 1,000. From 3 requests a second to 60. */
    WORKLOAD_SHARED_PREFIX,
    /* Conversations, each until it has 160,000 tokens: 3,000 that all have in common, then turns of
     * 1,500 tokens on average and 425 of the answer, and 15 seconds until the next one. */
    WORKLOAD_AGENTIC,
    N_WORKLOAD_KINDS
};

/* The beginning of a prompt, or all of it, with the hashes of its whole blocks of
 * ENGINE_BLOCK_TOKENS, each with those before it. */
struct sim_text {
    char *bytes;
    uint64_t *hashes;
    uint32_t n_tokens;
};

struct sim_turn {
    uint32_t text;
    uint32_t n_prompt, n_answer; /* tokens; the prompt is the beginning of the text */
    uint32_t n_kept;             /* of the text that is in the engine's cache after the answer */
    uint64_t after_ns;           /* from the beginning; with a turn before it from that one's end */
    uint32_t next;               /* the index of the turn that follows it; 0: none */
};

struct sim_workload {
    struct sim_text *texts;
    uint32_t n_texts;
    struct sim_turn *turns; /* first those that come on their own */
    uint32_t n_turns, n_first;
};

/* `size`: the share of the workload, so that a test takes a moment; 1 is all of it: seconds at each
 * rate, the number and length of conversations. Ends the program when out of memory. */
void sim_workload_make(enum sim_workload_kind kind, double size, uint64_t seed,
                       struct sim_workload *out);
void sim_workload_fini(struct sim_workload *workload);
/* "shared prefix" */
const char *sim_workload_name(enum sim_workload_kind kind);

/* The hash of the part of the text that ends at the token, where only whole blocks of so many
 * tokens, a multiple of ENGINE_BLOCK_TOKENS, were hashed before it. */
uint64_t sim_text_hash(const struct sim_text *text, uint32_t block_tokens, uint32_t end);

#endif
