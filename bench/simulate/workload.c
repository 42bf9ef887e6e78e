/* Random workloads; the parameters are those of the upstream project's benchmarks. */
#include "workload.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "core/base/random.h"
#include "engine.h"
#include "events.h"

enum { GROUPS = 150, PROMPTS = 5, SYSTEM_TOKENS = 6000, QUESTION_TOKENS = 1200, ANSWER = 1000 };
enum { SECONDS_AT_A_RATE = 30 };
static const uint32_t RATES[] = {3, 10, 15, 20, 25, 30, 40, 50, 60};

enum { CONVERSATIONS = 48, CONVERSATION_TOKENS = 160000, COMMON_TOKENS = 3000 };
enum { TURN_TOKENS = 1500, TURN_ANSWER = 425, TURN_GAP_S = 15, BEGIN_WITHIN_S = 300 };
/* Of the logarithms. */
static const double TOKENS_SIGMA = 0.8, GAP_SIGMA = 1.0;

static const uint64_t SECOND_NS = 1000000000;

/* ---- random numbers -------------------------------------------------------------------------- */

static double roll_normal(struct prng *prng) {
    double radius = sqrt(-2 * log(1 - prng_double(prng)));
    return radius * cos(2 * acos(-1) * prng_double(prng));
}

/* With this mean. */
static double roll_lognormal(struct prng *prng, double mean, double sigma) {
    return exp(log(mean) - sigma * sigma / 2 + sigma * roll_normal(prng));
}

static uint32_t roll_tokens(struct prng *prng, double mean) {
    double n = roll_lognormal(prng, mean, TOKENS_SIGMA);
    return n < 1 ? 1 : n > 20 * mean ? (uint32_t)(20 * mean) : (uint32_t)n;
}

/* ---- texts ----------------------------------------------------------------------------------- */

static void *get_zeroed(uint64_t n, size_t bytes) {
    void *got = calloc(n, bytes);
    if (!got) {
        sim_no_memory();
    }
    return got;
}

static void fill(struct sim_text *text, uint32_t from, uint32_t n, uint64_t seed) {
    struct prng prng = {seed};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t token = (uint32_t)prng_next(&prng);
        memcpy(text->bytes + (size_t)(from + i) * WORKLOAD_TOKEN_BYTES, &token, sizeof(token));
    }
}

static void open_text(struct sim_text *text, uint32_t n_tokens) {
    static_assert(WORKLOAD_TOKEN_BYTES == sizeof(uint32_t), "a token is a number");
    text->n_tokens = n_tokens;
    text->bytes = get_zeroed(n_tokens, WORKLOAD_TOKEN_BYTES);
    text->hashes = get_zeroed(n_tokens / ENGINE_BLOCK_TOKENS + 1, sizeof(uint64_t));
}

static struct str part_of(const struct sim_text *text, uint32_t from, uint32_t to) {
    return str_make(text->bytes + (size_t)from * WORKLOAD_TOKEN_BYTES,
                    (size_t)(to - from) * WORKLOAD_TOKEN_BYTES);
}

static void hash_blocks(struct sim_text *text) {
    uint64_t last = 1;
    for (uint32_t i = 0; i < text->n_tokens / ENGINE_BLOCK_TOKENS; i++) {
        uint32_t from = i * ENGINE_BLOCK_TOKENS;
        last = hash_text(part_of(text, from, from + ENGINE_BLOCK_TOKENS), last);
        text->hashes[i] = last;
    }
}

uint64_t sim_text_hash(const struct sim_text *text, uint32_t block_tokens, uint32_t end) {
    uint32_t whole = end / block_tokens * block_tokens;
    uint64_t before = whole > 0 ? text->hashes[whole / ENGINE_BLOCK_TOKENS - 1] : 1;
    return whole == end ? before : hash_text(part_of(text, whole, end), before);
}

/* ---- the shared prefix ----------------------------------------------------------------------- */

static void make_prompts(uint64_t seed, struct sim_workload *out) {
    out->n_texts = GROUPS * PROMPTS;
    out->texts = get_zeroed(out->n_texts, sizeof(*out->texts));
    for (uint32_t i = 0; i < out->n_texts; i++) {
        struct sim_text *text = &out->texts[i];
        open_text(text, SYSTEM_TOKENS + QUESTION_TOKENS);
        fill(text, 0, SYSTEM_TOKENS, seed * 1000 + i / PROMPTS);
        fill(text, SYSTEM_TOKENS, QUESTION_TOKENS, ~(seed * 1000 + i));
        hash_blocks(text);
    }
}

/* Prompts at random, at random times. */
static void make_ladder(double size, uint64_t seed, struct sim_workload *out) {
    struct prng prng = {seed};
    double ends_s = 1, now_s = 1, seconds = SECONDS_AT_A_RATE * size;
    uint32_t n_most = 100;
    for (size_t i = 0; i < sizeof(RATES) / sizeof(RATES[0]); i++) {
        n_most += 2 * (uint32_t)(RATES[i] * seconds);
    }
    out->turns = get_zeroed(n_most, sizeof(*out->turns));
    for (size_t i = 0; i < sizeof(RATES) / sizeof(RATES[0]); i++) {
        ends_s += seconds;
        for (; now_s < ends_s && out->n_turns < n_most; out->n_turns++) {
            uint32_t n_prompt = SYSTEM_TOKENS + QUESTION_TOKENS;
            out->turns[out->n_turns] = (struct sim_turn){.text = prng_below(&prng, out->n_texts),
                                                         .n_prompt = n_prompt,
                                                         .n_answer = ANSWER,
                                                         .n_kept = n_prompt,
                                                         .after_ns = (uint64_t)(now_s * 1e9)};
            now_s += -log(1 - prng_double(&prng)) / RATES[i];
        }
    }
    out->n_first = out->n_turns;
}

/* ---- conversations --------------------------------------------------------------------------- */

/* Each turn's prompt is that before it with its answer and what is new. */
static void make_conversation(uint32_t i, double size, uint64_t seed, uint32_t n_most,
                              struct sim_workload *out) {
    struct prng prng = {seed * 1000 + i};
    struct sim_text *text = &out->texts[i];
    uint32_t n_tokens = COMMON_TOKENS,
             n_end = COMMON_TOKENS + (uint32_t)((CONVERSATION_TOKENS - COMMON_TOKENS) * size);
    uint32_t at = i; /* of the first turn */
    open_text(text, n_end);
    fill(text, 0, COMMON_TOKENS, seed);
    fill(text, COMMON_TOKENS, n_end - COMMON_TOKENS, ~(seed * 1000 + i));
    hash_blocks(text);
    for (uint64_t after_ns = SECOND_NS + prng_share(&prng, BEGIN_WITHIN_S * SECOND_NS);;) {
        uint32_t n_prompt = n_tokens + roll_tokens(&prng, TURN_TOKENS);
        uint32_t n_answer = roll_tokens(&prng, TURN_ANSWER);
        n_prompt = n_prompt < n_end ? n_prompt : n_end;
        n_tokens = n_prompt + n_answer < n_end ? n_prompt + n_answer : n_end;
        out->turns[at] = (struct sim_turn){.text = i,
                                           .n_prompt = n_prompt,
                                           .n_answer = n_answer,
                                           .n_kept = n_tokens,
                                           .after_ns = after_ns};
        if (n_tokens == n_end || out->n_turns == n_most) {
            return;
        }
        after_ns = (uint64_t)(roll_lognormal(&prng, TURN_GAP_S, GAP_SIGMA) * 1e9);
        out->turns[at].next = out->n_turns;
        at = out->n_turns++;
    }
}

static void make_conversations(double size, uint64_t seed, struct sim_workload *out) {
    enum { LEAST = 8, MOST_TURNS = 1 << 16 };
    uint32_t n = (uint32_t)(CONVERSATIONS * size);
    out->n_texts = n < LEAST ? LEAST : n;
    out->n_first = out->n_turns = out->n_texts;
    out->texts = get_zeroed(out->n_texts, sizeof(*out->texts));
    out->turns = get_zeroed(MOST_TURNS, sizeof(*out->turns));
    for (uint32_t i = 0; i < out->n_texts; i++) {
        make_conversation(i, size, seed, MOST_TURNS, out);
    }
}

void sim_workload_make(enum sim_workload_kind kind, double size, uint64_t seed,
                       struct sim_workload *out) {
    *out = (struct sim_workload){.n_turns = 0};
    if (kind == WORKLOAD_AGENTIC) {
        make_conversations(size, seed, out);
        return;
    }
    make_prompts(seed, out);
    make_ladder(size, seed, out);
}

void sim_workload_fini(struct sim_workload *workload) {
    for (uint32_t i = 0; i < workload->n_texts; i++) {
        free(workload->texts[i].bytes);
        free(workload->texts[i].hashes);
    }
    free(workload->texts);
    free(workload->turns);
}

const char *sim_workload_name(enum sim_workload_kind kind) {
    return kind == WORKLOAD_AGENTIC ? "agentic" : "shared prefix";
}
