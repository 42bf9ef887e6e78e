/* Which requests of sequences are executed together: at most one of each sequence, the oldest
 * first. */
#include "serve/scheduler/instance.h"
#include "serve/scheduler/sequence/sequence.h"

/* What could be executed now of a lane, beginning with the oldest. */
struct offer {
    size_t n;          /* sequences, the first among them */
    uint64_t until_ns; /* when the first of them has waited for long enough */
};

static bool is_late(const struct sequence *sequence, uint64_t now_ns) {
    return patience_is_over(&sequence->first->patience, now_ns);
}

/* The oldest whose time is not over; NULL: none. */
static struct sequence *head_of(const struct lane *lane, uint64_t now_ns) {
    struct sequence *head = lane->ready.first;
    while (head && is_late(head, now_ns)) {
        head = head->next;
    }
    return head;
}

/* `head` itself is not late. */
static bool goes_with(const struct call *head, const struct sequence *sequence, uint64_t now_ns) {
    return sequence->first == head ||
           (!is_late(sequence, now_ns) && batch_can_share(head, sequence->first));
}

/* Counts those that fit into `most` rows. */
static struct offer gather(const struct sequence *head, size_t most, uint64_t now_ns) {
    struct offer offer = {.until_ns = UINT64_MAX};
    for (const struct sequence *sequence = head; sequence && offer.n < most;
         sequence = sequence->next) {
        if (goes_with(head->first, sequence, now_ns)) {
            uint64_t linger_ns = sequence->first->patience.linger_ns;
            offer.n++;
            offer.until_ns = linger_ns < offer.until_ns ? linger_ns : offer.until_ns;
        }
    }
    return offer;
}

static size_t most_rows(const struct sequences *all, const struct batch_rules *rules) {
    if (all->strategy == SEQUENCES_DIRECT) {
        return all->n_places;
    }
    uint64_t rows = rules->max_rows > 0 ? rules->max_rows : 1;
    return rows < INSTANCE_REQUESTS_MAX ? (size_t)rows : INSTANCE_REQUESTS_MAX;
}

/* The largest preferred size that `n` reaches; 0: none. */
static size_t preferred(const struct batch_rules *rules, size_t n) {
    uint64_t best = 0;
    for (size_t i = 0; i < rules->n_preferred; i++) {
        uint64_t size = rules->preferred[i];
        best = size <= n && size > best ? size : best;
    }
    return (size_t)best;
}

/* How many would be taken, and whether it is worth to wait for more. */
static size_t choose(const struct sequences *all, const struct batch_rules *rules,
                     const struct offer *offer, bool *full) {
    if (all->strategy == SEQUENCES_DIRECT) {
        *full = offer->n >= all->n_worth;
        return offer->n;
    }
    size_t size = preferred(rules, offer->n);
    *full = size > 0 || offer->n == most_rows(all, rules);
    return size > 0 ? size : offer->n;
}

bool sequences_are_due(const struct sequences *all, const struct batch_rules *rules, size_t lane,
                       uint64_t now_ns, uint64_t *until_ns) {
    const struct sequence *head = head_of(&all->lanes[lane], now_ns);
    bool full;
    *until_ns = UINT64_MAX;
    if (!head) {
        return false;
    }
    struct offer offer = gather(head, most_rows(all, rules), now_ns);
    choose(all, rules, &offer, &full);
    if (full || offer.until_ns <= now_ns) {
        return true;
    }
    *until_ns = offer.until_ns;
    return false;
}

/* Its first call runs. */
static struct call *begin(struct sequences *all, struct sequence *sequence) {
    struct call *call = sequence->first;
    struct lane *lane = sequence->lane;
    sequence->n_waiting--;
    sequence->first = call->later;
    if (sequence->first) {
        sequence->first->earlier = NULL;
    } else {
        sequence->last = NULL;
    }
    call->earlier = call->later = NULL;
    if (all->strategy == SEQUENCES_DIRECT) {
        call->sequence = NULL; /* it ends with the execution, not with the answer */
    }
    sequence->running = true;
    sequence_list_move(&lane->running, sequence);
    return call;
}

size_t sequences_take(struct sequences *all, const struct batch_rules *rules, size_t lane,
                      struct call **batch, uint64_t now_ns) {
    struct sequence *sequence = head_of(&all->lanes[lane], now_ns);
    bool full;
    struct offer offer = gather(sequence, most_rows(all, rules), now_ns);
    size_t left = choose(all, rules, &offer, &full), n = 0;
    const struct call *head = sequence->first;
    for (size_t i = 0; all->strategy == SEQUENCES_DIRECT && i < all->n_places; i++) {
        batch[i] = NULL;
    }
    while (left > 0) { /* they are there: the offer was made of this same list */
        struct sequence *next = sequence->next;
        if (goes_with(head, sequence, now_ns)) {
            size_t at = all->strategy == SEQUENCES_DIRECT ? sequence->slot : n;
            batch[at] = begin(all, sequence);
            n = at >= n ? at + 1 : n;
            left--;
        }
        sequence = next;
    }
    return n;
}
