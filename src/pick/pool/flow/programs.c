/* Service fades when it is read: it is stored with the time that it was true at. */
#include "pick/pool/flow/programs.h"

#include <math.h>
#include <stdlib.h>

#include "core/event/clock.h"

static const double NS_PER_S = 1e9;

struct program {
    struct keyed_hash id;
    double service; /* at served_ns */
    uint64_t served_ns;
    uint64_t n_turns, n_in_flight; /* of the requests that programs_begin_turn has counted */
    struct program *next_in_bucket;
    TAILQ_ENTRY(program) link;
};

void programs_init(struct programs *programs) {
    *programs = (struct programs){.slots = NULL};
    TAILQ_INIT(&programs->by_age);
}

static struct program **slot_of(const struct programs *programs, struct keyed_hash id) {
    struct program **slot = &programs->slots[id.low & programs->slots_mask];
    while (*slot && !keyed_hash_eq((*slot)->id, id)) {
        slot = &(*slot)->next_in_bucket;
    }
    return slot;
}

static void forget(struct programs *programs, struct program *program) {
    struct program **slot = slot_of(programs, program->id);
    *slot = program->next_in_bucket;
    TAILQ_REMOVE(&programs->by_age, program, link);
    programs->n--;
    free(program);
}

void programs_fini(struct programs *programs) {
    struct program *program;
    while ((program = TAILQ_FIRST(&programs->by_age))) {
        forget(programs, program);
    }
    free(programs->slots);
}

static double faded(const struct program *program, const struct program_rules *rules,
                    uint64_t now_ns) {
    double age_s = (double)clock_between_ns(program->served_ns, now_ns) / NS_PER_S;
    return rules->half_life_s > 0 ? program->service * exp2(-age_s / rules->half_life_s)
                                  : program->service;
}

static bool is_old(const struct program *program, const struct program_rules *rules,
                   uint64_t now_ns) {
    return rules->ttl_s > 0 && program->n_in_flight == 0 &&
           (double)clock_between_ns(program->served_ns, now_ns) / NS_PER_S > rules->ttl_s;
}

/* Returns: NULL when out of memory. */
static struct program *find_or_add(struct programs *programs, struct keyed_hash id) {
    enum { N_SLOTS = PROGRAMS_MAX };
    if (!programs->slots) {
        programs->slots = calloc(N_SLOTS, sizeof(struct program *));
        programs->slots_mask = N_SLOTS - 1;
    }
    struct program *program = programs->slots ? *slot_of(programs, id) : NULL;
    if (program || !programs->slots) {
        return program;
    }
    struct program *oldest = programs->n >= PROGRAMS_MAX ? TAILQ_FIRST(&programs->by_age) : NULL;
    if (oldest) {
        forget(programs, oldest);
    }
    program = calloc(1, sizeof(*program));
    if (program) {
        struct program **slot = slot_of(programs, id);
        program->id = id;
        *slot = program;
        TAILQ_INSERT_TAIL(&programs->by_age, program, link);
        programs->n++;
    }
    return program;
}

/* Old programs are few at a time: each call forgets two. */
static void forget_some(struct programs *programs, const struct program_rules *rules,
                        uint64_t now_ns) {
    enum { FORGOTTEN = 2 };
    programs->now_ns = now_ns > programs->now_ns ? now_ns : programs->now_ns;
    for (int i = 0; i < FORGOTTEN; i++) {
        struct program *oldest = TAILQ_FIRST(&programs->by_age);
        if (oldest && is_old(oldest, rules, programs->now_ns)) {
            forget(programs, oldest);
        }
    }
}

/* It is the youngest now, and its service is that of now. */
static void renew(struct programs *programs, const struct program_rules *rules,
                  struct program *program) {
    program->service = faded(program, rules, programs->now_ns);
    program->served_ns = programs->now_ns;
    TAILQ_REMOVE(&programs->by_age, program, link);
    TAILQ_INSERT_TAIL(&programs->by_age, program, link);
}

void programs_add(struct programs *programs, const struct program_rules *rules,
                  struct keyed_hash id, double cost, uint64_t now_ns) {
    forget_some(programs, rules, now_ns);
    struct program *program = find_or_add(programs, id);
    if (program) {
        renew(programs, rules, program);
        program->service += cost;
        program->n_in_flight -= program->n_in_flight > 0;
    }
}

void programs_begin_turn(struct programs *programs, const struct program_rules *rules,
                         struct keyed_hash id, uint64_t now_ns) {
    forget_some(programs, rules, now_ns);
    struct program *program = find_or_add(programs, id);
    if (program) {
        renew(programs, rules, program);
        program->n_turns++;
        program->n_in_flight++;
    }
}

void programs_end_turn(struct programs *programs, const struct program_rules *rules,
                       struct keyed_hash id, uint64_t now_ns) {
    struct program *program = programs->slots ? *slot_of(programs, id) : NULL;
    programs->now_ns = now_ns > programs->now_ns ? now_ns : programs->now_ns;
    if (program) {
        renew(programs, rules, program);
        program->n_in_flight -= program->n_in_flight > 0;
    }
}

double programs_depth(const struct programs *programs, const struct program_rules *rules,
                      struct keyed_hash id, uint64_t queued_ns) {
    const struct program *program = programs->slots ? *slot_of(programs, id) : NULL;
    double idle_s = program && program->n_in_flight == 0 && queued_ns > program->served_ns
                        ? (double)(queued_ns - program->served_ns) / NS_PER_S
                        : 0;
    bool begins = !program || is_old(program, rules, programs->now_ns) ||
                  (rules->inactivity_s > 0 && idle_s > rules->inactivity_s);
    double turn = begins ? 1 : (double)program->n_turns + 1;
    return turn - rules->time_weight * ((double)queued_ns / NS_PER_S);
}

/* All services are compared at one time, whichever it is: what fades since is the same share of
 * each. */
double programs_service(const struct programs *programs, const struct program_rules *rules,
                        struct keyed_hash id) {
    const struct program *program = programs->slots ? *slot_of(programs, id) : NULL;
    return program && !is_old(program, rules, programs->now_ns)
               ? faded(program, rules, programs->now_ns)
               : 0;
}

static double scale(double value, struct program_range range) {
    return range.most > range.least ? (value - range.least) / (range.most - range.least) : 0.5;
}

/* The wait is the longest where the time of queueing is the earliest. */
double program_score(const struct program_rules *rules, double service, double queued_ns,
                     struct program_range services, struct program_range queued) {
    return rules->weight_service * (1 - scale(service, services)) +
           rules->weight_head_wait * (1 - scale(queued_ns, queued));
}
