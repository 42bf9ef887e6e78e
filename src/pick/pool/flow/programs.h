/* What programs (fairness ids) have been served: the tokens of their requests that have ended, each
 * of the output counting as two of the prompt, halved every half-life; and their turns, the
 * requests that were sent. For FLOW_BY_PROGRAM.
 *
 * The table is bounded: of PROGRAMS_MAX programs the one that was served longest ago is forgotten,
 * and each after a time without a served request.
 *
 * Sans I/O, without lock and clock: the caller serializes the calls and passes the time. */
#ifndef SLUICE_PICK_POOL_FLOW_PROGRAMS_H
#define SLUICE_PICK_POOL_FLOW_PROGRAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "core/base/hash.h"

enum { PROGRAMS_MAX = 1 << 14 };

/* Which program is next: the one with the highest score.
 *
 * PROGRAMS_LEAST_SERVICE: weight_service * (1 - service) + weight_head_wait * wait, where service
 * and the wait of the first request are those of all programs that wait, scaled to 0..1.
 *
 * PROGRAMS_DEEPEST: the turn that its first request is, plus time_weight for each second that this
 * waits; of equals the one that waits longest. A program none of whose requests was in flight for
 * more than inactivity_s when that request came begins with turn 1 again. */
enum program_strategy { PROGRAMS_LEAST_SERVICE, PROGRAMS_DEEPEST };

struct program_rules {
    double weight_service, weight_head_wait;
    double half_life_s; /* of service; 0: it does not fade */
    double ttl_s;       /* a program that was not served for so long is forgotten; 0: never */
    enum program_strategy strategy;
    double time_weight;
    double inactivity_s; /* 0: turns are counted on */
};

struct program;
TAILQ_HEAD(program_list, program);

/* Zeroed memory is an empty table, after programs_init. */
struct programs {
    struct program **slots; /* a hash table; NULL: empty */
    size_t slots_mask, n;
    struct program_list by_age; /* served longest ago first */
    uint64_t now_ns;            /* the newest time that was passed */
};

void programs_init(struct programs *programs);
void programs_fini(struct programs *programs);

/* A request of the program is sent: a turn. Out of memory it does not count. Each is followed by
 * programs_add or programs_end_turn. */
void programs_begin_turn(struct programs *programs, const struct program_rules *rules,
                         struct keyed_hash id, uint64_t now_ns);
/* It has ended without an answer that costs. */
void programs_end_turn(struct programs *programs, const struct program_rules *rules,
                       struct keyed_hash id, uint64_t now_ns);
/* A request of the program has ended. Out of memory it does not count. */
void programs_add(struct programs *programs, const struct program_rules *rules,
                  struct keyed_hash id, double cost, uint64_t now_ns);
/* What is left of the program's service, at the newest time that was passed. */
double programs_service(const struct programs *programs, const struct program_rules *rules,
                        struct keyed_hash id);

/* The score by PROGRAMS_DEEPEST of a program whose first request was queued then, without what all
 * have in common. */
double programs_depth(const struct programs *programs, const struct program_rules *rules,
                      struct keyed_hash id, uint64_t queued_ns);

/* The range of a value over all programs that wait. */
struct program_range {
    double least, most;
};
/* The score by PROGRAMS_LEAST_SERVICE of a program with this service, whose first request was
 * queued then. */
double program_score(const struct program_rules *rules, double service, double queued_ns,
                     struct program_range services, struct program_range queued);

#endif
