/* Which requests of sequences are executed together: at most one of each sequence, the oldest
 * first. */
#include "serve/scheduler/instance.h"
#include "serve/scheduler/sequence/sequence.h"

/* What could be executed now of a lane, beginning with the oldest. */
struct sequence_candidate {
    size_t n;          /* sequences, the first among them */
    uint64_t until_ns; /* when the first of them has waited for long enough */
};

static bool is_expired(const struct sequence *sequence, uint64_t now_ns) {
    return queue_deadline_passed(&sequence->first->queue_deadline, now_ns);
}

/* The oldest whose time is not over; NULL: none. */
static struct sequence *oldest_in_time(const struct instance_sequences *instance, uint64_t now_ns) {
    struct sequence *head = instance->ready.first;
    while (head && is_expired(head, now_ns)) {
        head = head->next;
    }
    return head;
}

/* `head` itself is not late. */
static bool joins_batch(const struct call *head, const struct sequence *sequence, uint64_t now_ns) {
    return sequence->first == head ||
           (!is_expired(sequence, now_ns) && batch_can_share(head, sequence->first));
}

/* Counts those that fit into `most` rows. */
static struct sequence_candidate collect_sequences(const struct sequence *head, size_t most,
                                                   uint64_t now_ns) {
    struct sequence_candidate candidate = {.until_ns = UINT64_MAX};
    for (const struct sequence *sequence = head; sequence && candidate.n < most;
         sequence = sequence->next) {
        if (joins_batch(head->first, sequence, now_ns)) {
            uint64_t batch_wait_until_ns = sequence->first->queue_deadline.batch_wait_until_ns;
            candidate.n++;
            candidate.until_ns =
                batch_wait_until_ns < candidate.until_ns ? batch_wait_until_ns : candidate.until_ns;
        }
    }
    return candidate;
}

static size_t max_batch_rows(const struct sequences *all, const struct batch_rules *rules) {
    if (all->strategy == SEQUENCES_DIRECT) {
        return all->slots_per_instance;
    }
    uint64_t rows = rules->max_rows > 0 ? rules->max_rows : 1;
    return rows < INSTANCE_REQUESTS_MAX ? (size_t)rows : INSTANCE_REQUESTS_MAX;
}

/* The largest preferred size that `n` reaches; 0: none. */
static size_t preferred_size(const struct batch_rules *rules, size_t n) {
    uint64_t best = 0;
    for (size_t i = 0; i < rules->n_preferred; i++) {
        uint64_t size = rules->preferred[i];
        best = size <= n && size > best ? size : best;
    }
    return (size_t)best;
}

/* How many would be taken, and whether it is worth to wait for more. */
static size_t choose_size(const struct sequences *all, const struct batch_rules *rules,
                          const struct sequence_candidate *candidate, bool *full) {
    if (all->strategy == SEQUENCES_DIRECT) {
        *full = candidate->n >= all->min_batch_slots;
        return candidate->n;
    }
    size_t size = preferred_size(rules, candidate->n);
    *full = size > 0 || candidate->n == max_batch_rows(all, rules);
    return size > 0 ? size : candidate->n;
}

bool sequences_are_due(const struct sequences *all, const struct batch_rules *rules,
                       size_t instance, uint64_t now_ns, uint64_t *until_ns) {
    const struct sequence *head = oldest_in_time(&all->instances[instance], now_ns);
    bool full;
    *until_ns = UINT64_MAX;
    if (!head) {
        return false;
    }
    struct sequence_candidate candidate =
        collect_sequences(head, max_batch_rows(all, rules), now_ns);
    choose_size(all, rules, &candidate, &full);
    if (full || candidate.until_ns <= now_ns) {
        return true;
    }
    *until_ns = candidate.until_ns;
    return false;
}

/* Its first call runs. */
static struct call *start_oldest_call(struct sequences *all, struct sequence *sequence) {
    struct call *call = sequence->first;
    struct instance_sequences *instance = sequence->instance;
    sequence->n_waiting--;
    sequence->first = call->sequence_next;
    if (sequence->first) {
        sequence->first->sequence_prev = NULL;
    } else {
        sequence->last = NULL;
    }
    call->sequence_prev = call->sequence_next = NULL;
    if (all->strategy == SEQUENCES_DIRECT) {
        call->sequence = NULL; /* it ends with the execution, not with the answer */
    }
    sequence->running = true;
    sequence_list_move(&instance->running, sequence);
    return call;
}

size_t sequences_take(struct sequences *all, const struct batch_rules *rules, size_t instance,
                      struct call **batch, uint64_t now_ns) {
    struct sequence *sequence = oldest_in_time(&all->instances[instance], now_ns);
    bool full;
    struct sequence_candidate candidate =
        collect_sequences(sequence, max_batch_rows(all, rules), now_ns);
    size_t left = choose_size(all, rules, &candidate, &full), n = 0;
    const struct call *head = sequence->first;
    for (size_t i = 0; all->strategy == SEQUENCES_DIRECT && i < all->slots_per_instance; i++) {
        batch[i] = NULL;
    }
    while (left > 0) { /* they are there: the offer was made of this same list */
        struct sequence *next = sequence->next;
        if (joins_batch(head, sequence, now_ns)) {
            size_t at = all->strategy == SEQUENCES_DIRECT ? sequence->slot : n;
            batch[at] = start_oldest_call(all, sequence);
            n = at >= n ? at + 1 : n;
            left--;
        }
        sequence = next;
    }
    return n;
}
