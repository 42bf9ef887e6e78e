/* Fewer requests waiting is better. */
#include "pick/pool/profile/plugin.h"

static void gauge(const void *parameters, const struct choice *choice, struct choice_range range,
                  struct choice_facts *out) {
    (void)parameters;
    choice_gauge(choice->columns->n_waiting, range, out);
}

static void rate(const void *parameters, const struct choice *choice,
                 const struct choice_facts *facts, float weight, struct choice_range range,
                 float *out) {
    (void)parameters;
    choice_rate_least(choice->columns->n_waiting, facts, weight, range, out);
}

static const struct plugin_standing STANDING = {.of_counts = true, .gauge = gauge, .rate = rate};

static void score(const void *parameters, struct choice *choice, float weight) {
    plugin_score_standing(&STANDING, parameters, choice, weight);
}

const struct plugin plugin_queue_scorer = {
    .type = "queue-scorer", .kind = PLUGIN_SCORER, .score = score, .standing = &STANDING};
