/* Placing the requests of a window: by hand, and held to a plain version of the rules over
 * thousands of random windows. */
#include "pick/pool/prefix/burst_assign.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/random.h"

enum { MOST = 64, BLOCKS = 12 };

/* A window written as one word for each request: its blocks, a letter each. */
struct window {
    struct burst_entry entries[MOST];
    uint64_t hashes[MOST][BLOCKS];
    uint32_t n;
};

static void add(struct window *window, const char *word) {
    struct burst_entry *entry = &window->entries[window->n];
    uint64_t hash = 1;
    *entry = (struct burst_entry){.is_present = true, .hashes = window->hashes[window->n]};
    for (const char *at = word; *at; at++) {
        hash = (hash ^ (unsigned char)*at) * UINT64_C(0x9e3779b97f4a7c15);
        window->hashes[window->n][entry->n_blocks++] = hash ^ hash >> 31;
    }
    window->n++;
}

static void fill(struct window *window, const char *text) {
    char copy[400], *rest = copy, *word;
    window->n = 0;
    strcpy(copy, text);
    while ((word = strsep(&rest, " "))) {
        add(window, word);
    }
}

static const float IDLE[MOST];

/* The targets as letters, "." for none. */
static void check(const char *text, uint32_t n_replicas, struct burst_rules rules,
                  const float *n_running, const char *wanted) {
    struct window window;
    char got[MOST + 1] = "";
    fill(&window, text);
    burst_assign(window.entries, window.n, n_running, n_replicas, &rules);
    for (uint32_t i = 0; i < window.n; i++) {
        uint32_t target = window.entries[i].target;
        got[i] = target == BURST_NOWHERE ? '.' : (char)('A' + target);
    }
    if (strcmp(got, wanted) != 0) {
        fail_msg("%s: got %s, wanted %s", text, got, wanted);
    }
}

static void burst_equal_prompts_come_together(void **state) {
    static const float busy[] = {5, 0, 3};
    (void)state;
    struct burst_rules rules = {.max_per_replica = 0};
    check("abc abc abc abc", 4, rules, IDLE, "AAAA");
    check("abc xyz abc xyz", 4, rules, IDLE, "ABAB");
    check("abc xyz", 4, rules, IDLE, "..");   /* each alone */
    check("abc  abc", 4, rules, IDLE, "A.A"); /* no prompt */
    check("abc abc", 3, rules, busy, "BB");
    check("ab ab abcd abcd", 2, rules, IDLE, "BBAA"); /* the longer one first */
    check("abc abc", 0, rules, IDLE, "..");
    rules.max_per_replica = 2;
    check("abc abc abc abc abc abc abc abc", 4, rules, IDLE, "AABBCCDD");
    check("abc abc abc abc abc abc abc abc", 2, rules, IDLE, "AABBABAB"); /* more than fit */
    rules.max_per_replica = 3;
    check("abc abc abc abc", 4, rules, IDLE, "AAAB");
}

static void burst_shared_beginnings_come_together(void **state) {
    (void)state;
    struct burst_rules rules = {.min_blocks = 2};
    check("abc abc abd abd xyz xyz xyw xyw", 2, rules, IDLE, "AAAABBBB");
    check("abc abc abd abd abe abe abf abf", 4, rules, IDLE, "AABBCCDD"); /* a fair share each */
    check("abc abc abh xye xye xyi", 2, rules, IDLE, "AAABBB");           /* single ones join */
    check("abc abc eee", 2, rules, IDLE, "AA.");
    check("abc abd abe abf", 2, rules, IDLE, "AABB"); /* no equal ones at all */
    rules.min_blocks = 3;
    check("abc abc abd abd", 2, rules, IDLE, "AABB"); /* they share too little */
    check("ab ab ab", 2, rules, IDLE, "AAA");
}

static void burst_tokens_are_balanced(void **state) {
    (void)state;
    struct burst_rules rules = {.by_tokens = false};
    check("abcd abcd e e f f", 2, rules, IDLE, "AABBAA");
    rules.by_tokens = true;
    check("abcd abcd e e f f", 2, rules, IDLE, "AABBBB");
    rules.min_blocks = 9;
    check("abcdefghij abcdefghij abcdefghik abcdefghik abcdefghil abcdefghil", 2, rules, IDLE,
          "AAAAAA"); /* what is there already costs nothing */
}

static void burst_left_requests_do_not_count(void **state) {
    struct window window;
    struct burst_rules rules = {.max_per_replica = 0};
    (void)state;
    fill(&window, "abc abc xyz xyz");
    window.entries[0].is_present = false;
    burst_assign(window.entries, window.n, IDLE, 2, &rules);
    assert_int_equal(window.entries[0].target, BURST_NOWHERE);
    assert_int_equal(window.entries[1].target, BURST_NOWHERE);
    assert_int_equal(window.entries[2].target, 0);
    assert_int_equal(window.entries[3].target, 0);
}

/* ---- against the rules, step by step --------------------------------------------------------- */

struct plain {
    uint64_t load;
    uint32_t n_held;
    uint32_t held[MOST]; /* units that are there */
};

static uint32_t shared_of(const struct burst_entry *a, const struct burst_entry *b) {
    uint32_t n = 0;
    while (n < a->n_blocks && n < b->n_blocks && a->hashes[n] == b->hashes[n]) {
        n++;
    }
    return n;
}

static bool is_less(const struct plain *replicas, const float *n_running, uint32_t a, uint32_t b) {
    if (replicas[a].load != replicas[b].load) {
        return replicas[a].load < replicas[b].load;
    }
    if (n_running[a] < n_running[b] || n_running[a] > n_running[b]) {
        return n_running[a] < n_running[b];
    }
    return a < b;
}

static uint32_t match_at(const struct window *window, const struct plain *replica, uint32_t unit) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < replica->n_held; i++) {
        uint32_t n = shared_of(&window->entries[replica->held[i]], &window->entries[unit]);
        most = n > most ? n : most;
    }
    return most;
}

/* `unit`: the index of its first request. */
static void place_plain(struct window *window, struct plain *replicas, const float *n_running,
                        uint32_t n_replicas, const struct burst_rules *rules, uint32_t unit,
                        uint64_t share, uint32_t *out) {
    uint32_t there[MOST] = {0}, matches[MOST];
    bool prefers = rules->min_blocks > 0;
    const struct burst_entry *own = &window->entries[unit];
    for (uint32_t r = 0; r < n_replicas; r++) {
        matches[r] = match_at(window, &replicas[r], unit);
    }
    for (uint32_t i = unit; i < window->n; i++) {
        const struct burst_entry *entry = &window->entries[i];
        if (!entry->is_present || entry->n_blocks != own->n_blocks ||
            shared_of(entry, own) != own->n_blocks) {
            continue;
        }
        uint32_t best = BURST_NOWHERE;
        /* a run goes on where it is until the limit */
        for (uint32_t r = 0; r < n_replicas && out[MOST] == unit + 1; r++) {
            uint32_t limit = rules->max_per_replica;
            if (r == out[MOST + 1] && (limit == 0 || there[r] < limit)) {
                best = r;
            }
        }
        for (uint32_t r = 0; r < n_replicas && prefers && best == BURST_NOWHERE; r++) {
            uint32_t found = BURST_NOWHERE;
            for (uint32_t k = 0; k < n_replicas; k++) {
                if (replicas[k].load < share && matches[k] >= rules->min_blocks &&
                    (found == BURST_NOWHERE || matches[k] > matches[found] ||
                     (matches[k] == matches[found] && is_less(replicas, n_running, k, found)))) {
                    found = k;
                }
            }
            best = found;
            break;
        }
        for (int pass = 0; pass < 2 && best == BURST_NOWHERE; pass++) {
            for (uint32_t r = 0; r < n_replicas; r++) {
                bool fits = rules->max_per_replica == 0 || there[r] < rules->max_per_replica;
                if ((fits || pass == 1) &&
                    (best == BURST_NOWHERE || is_less(replicas, n_running, r, best))) {
                    best = r;
                }
            }
        }
        prefers = false;
        out[i] = best;
        out[MOST] = unit + 1;
        out[MOST + 1] = best;
        if (there[best]++ == 0) {
            uint32_t cost = own->n_blocks > matches[best] ? own->n_blocks - matches[best] : 0;
            replicas[best].load += rules->by_tokens ? cost : 0;
        }
        replicas[best].load += !rules->by_tokens;
    }
    for (uint32_t r = 0; r < n_replicas; r++) {
        if (there[r] > 0) {
            replicas[r].held[replicas[r].n_held++] = unit;
        }
    }
}

static void assign_plain(struct window *window, const float *n_running, uint32_t n_replicas,
                         const struct burst_rules *rules, uint32_t out[MOST + 2]) {
    static struct plain replicas[MOST];
    uint32_t size[MOST] = {0}, n_total = 0;
    bool is_placed[MOST] = {false};
    memset(replicas, 0, sizeof(replicas));
    memset(out, 0xff, (MOST + 2) * sizeof(*out));
    for (uint32_t i = 0; i < window->n; i++) { /* units: at their first requests */
        const struct burst_entry *entry = &window->entries[i];
        uint32_t k = 0;
        while (k < i && !(window->entries[k].is_present && size[k] > 0 &&
                          window->entries[k].n_blocks == entry->n_blocks &&
                          shared_of(&window->entries[k], entry) == entry->n_blocks)) {
            k++;
        }
        size[k] += entry->is_present && entry->n_blocks > 0;
    }
    for (uint32_t i = 0; i < window->n; i++) { /* single ones that share nothing are left out */
        bool shares = false;
        for (uint32_t k = 0; k < window->n; k++) {
            shares |= k != i && size[k] > 0 && rules->min_blocks > 0 &&
                      shared_of(&window->entries[i], &window->entries[k]) >= rules->min_blocks;
        }
        size[i] = size[i] == 1 && !shares ? 0 : size[i];
    }
    for (uint32_t i = 0; i < window->n; i++) {
        n_total += size[i] == 0 ? 0 : rules->by_tokens ? window->entries[i].n_blocks : size[i];
    }
    for (;;) {
        uint32_t next = BURST_NOWHERE;
        for (uint32_t i = 0; i < window->n; i++) {
            if (size[i] == 0 || is_placed[i]) {
                continue;
            }
            bool is_better = next == BURST_NOWHERE || (size[i] > 1 && size[next] == 1) ||
                             ((size[i] > 1) == (size[next] > 1) &&
                              window->entries[i].n_blocks > window->entries[next].n_blocks);
            next = is_better ? i : next;
        }
        if (next == BURST_NOWHERE) {
            return;
        }
        is_placed[next] = true;
        place_plain(window, replicas, n_running, n_replicas, rules, next,
                    (n_total + n_replicas - 1) / n_replicas, out);
    }
}

static void burst_random_windows_follow_the_rules(void **state) {
    struct prng prng = {3};
    (void)state;
    for (int i = 0; i < 5000; i++) {
        struct window window = {.n = 0};
        float n_running[8];
        uint32_t wanted[MOST + 2], n_replicas = 1 + prng_below(&prng, 8);
        struct burst_rules rules = {.max_per_replica = prng_below(&prng, 5),
                                    .min_blocks = prng_below(&prng, 4),
                                    .by_tokens = prng_below(&prng, 2) == 1};
        uint32_t n = prng_below(&prng, 40);
        for (uint32_t k = 0; k < n; k++) {
            char word[8] = "";
            uint32_t n_blocks = prng_below(&prng, 6);
            for (uint32_t b = 0; b < n_blocks; b++) {
                word[b] = (char)('a' + prng_below(&prng, 2));
            }
            add(&window, word);
            window.entries[k].is_present = prng_below(&prng, 8) > 0;
        }
        for (uint32_t r = 0; r < 8; r++) {
            n_running[r] = (float)prng_below(&prng, 3);
        }
        assign_plain(&window, n_running, n_replicas, &rules, wanted);
        burst_assign(window.entries, window.n, n_running, n_replicas, &rules);
        for (uint32_t k = 0; k < n; k++) {
            if (window.entries[k].target != wanted[k]) {
                fail_msg("window %d, request %u: got %u, wanted %u (%u at most, %u shared, %d)", i,
                         k, window.entries[k].target, wanted[k], rules.max_per_replica,
                         rules.min_blocks, rules.by_tokens);
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(burst_equal_prompts_come_together),
        cmocka_unit_test(burst_shared_beginnings_come_together),
        cmocka_unit_test(burst_tokens_are_balanced),
        cmocka_unit_test(burst_left_requests_do_not_count),
        cmocka_unit_test(burst_random_windows_follow_the_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
