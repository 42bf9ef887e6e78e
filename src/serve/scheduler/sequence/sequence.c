/* Sequences of requests: which are open, which own a slot at an instance, and which calls run next.
 * Each sequence is in the one list that its state requires; sequence_update_list moves it after
 * every change. Open sequences are found in a hash table, whose keyed hash prevents clients from
 * choosing identifiers that collide. */
#include "serve/scheduler/sequence/sequence.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/metric/metric.h"
#include "serve/scheduler/instance.h"
#include "serve/scheduler/sequence/state.h"
#include "serve/scheduler/version.h"

/* ---- table of open sequences ----------------------------------------------------------------- */

enum { FIRST_SLOTS = 64 };

static bool same_id(const struct sequence_id *a, const struct sequence_id *b) {
    return a->is_text == b->is_text && a->number == b->number && str_eq(a->text, b->text);
}

static struct sequence **bucket_of(const struct sequences *all, const struct sequence_id *id) {
    struct str number = str_make((const char *)&id->number, sizeof(id->number));
    uint64_t hash = keyed_hash_of(&all->key, id->is_text ? id->text : number).low;
    return &all->table[hash & all->table_mask];
}

static struct sequence *sequence_table_find(const struct sequences *all,
                                            const struct sequence_id *id) {
    struct sequence *sequence = all->table ? *bucket_of(all, id) : NULL;
    while (sequence && !same_id(&sequence->id, id)) {
        sequence = sequence->hash_next;
    }
    return sequence;
}

static void bucket_insert(struct sequences *all, struct sequence *sequence) {
    struct sequence **slot = bucket_of(all, &sequence->id);
    sequence->hash_next = *slot;
    *slot = sequence;
}

static bool table_grow(struct sequences *all) {
    size_t n_before = all->table ? all->table_mask + 1 : 0;
    size_t n = n_before > 0 ? n_before * 2 : FIRST_SLOTS;
    struct sequence **before = all->table;
    struct sequence **table = calloc(n, sizeof(struct sequence *));
    if (!table) {
        return before != NULL; /* keep the table; its chains get longer */
    }
    all->table = table;
    all->table_mask = n - 1;
    for (size_t i = 0; i < n_before; i++) {
        struct sequence *sequence = before[i];
        while (sequence) {
            struct sequence *next = sequence->hash_next;
            bucket_insert(all, sequence);
            sequence = next;
        }
    }
    free(before);
    return true;
}

static void sequence_table_remove(struct sequences *all, struct sequence *sequence) {
    struct sequence **slot = bucket_of(all, &sequence->id);
    while (*slot != sequence) {
        slot = &(*slot)->hash_next;
    }
    *slot = sequence->hash_next;
    sequence->hash_next = NULL;
    sequence->open = false;
    all->n_open--;
}

enum { NS_PER_US = 1000 };

/* ---- creation -------------------------------------------------------------------------------- */

static size_t slots_per_instance_of(const struct model_config *config) {
    const struct model_sequences *wanted = &config->sequences;
    uint64_t rows = config->max_batch_size > 0 ? config->max_batch_size : 1;
    if (wanted->strategy == SEQUENCES_OLDEST) {
        return (size_t)(wanted->max_candidates > 0 ? wanted->max_candidates : rows);
    }
    return rows < INSTANCE_REQUESTS_MAX ? (size_t)rows : INSTANCE_REQUESTS_MAX;
}

static size_t min_batch_slots_of(const struct model_sequences *config, size_t slots_per_instance) {
    double share = config->min_utilization * (double)slots_per_instance;
    size_t n = (size_t)share;
    n += (double)n < share;
    return n > 0 ? n : 1;
}

static bool instances_alloc(struct sequences *all) {
    all->instances = calloc(all->n_instances, sizeof(*all->instances));
    for (size_t i = 0; all->instances && i < all->n_instances; i++) {
        struct instance_sequences *instance = &all->instances[i];
        instance->n_free = all->slots_per_instance;
        TAILQ_INIT(&instance->ready);
        TAILQ_INIT(&instance->running);
        if (all->strategy == SEQUENCES_DIRECT) {
            instance->slots = calloc(all->slots_per_instance, sizeof(struct sequence *));
            if (!instance->slots) {
                return false;
            }
        }
    }
    return all->instances != NULL;
}

enum status sequences_new(const struct model_config *config, size_t n_instances,
                          struct sequences **out, struct error *err) {
    *out = NULL;
    if (config->sequences.strategy == SEQUENCES_NONE) {
        return ST_OK;
    }
    struct sequences *all = calloc(1, sizeof(*all));
    if (all) {
        all->strategy = config->sequences.strategy;
        all->slots_per_instance = slots_per_instance_of(config);
        all->min_batch_slots = min_batch_slots_of(&config->sequences, all->slots_per_instance);
        all->idle_ns = config->sequences.idle_us < UINT64_MAX / NS_PER_US
                           ? config->sequences.idle_us * NS_PER_US
                           : UINT64_MAX;
        all->n_instances = n_instances;
        all->n_states = config->sequences.n_states;
        all->until_answered =
            all->strategy == SEQUENCES_OLDEST || all->n_states > 0 || config->sequences.iterative;
        TAILQ_INIT(&all->backlog);
        TAILQ_INIT(&all->idle);
        hash_key_init(&all->key);
    }
    if (!all || !instances_alloc(all)) {
        sequences_free(all);
        return error_no_memory(err, "the model's sequences");
    }
    *out = all;
    return ST_OK;
}

/* ---- lists ----------------------------------------------------------------------------------- */

static void list_remove(struct sequence *sequence) {
    if (sequence->in) {
        TAILQ_REMOVE(sequence->in, sequence, link);
        sequence->in = NULL;
    }
}

static void list_add(struct sequence_list *list, struct sequence *sequence) {
    sequence->in = list;
    TAILQ_INSERT_TAIL(list, sequence, link);
}

static uint64_t first_arrival(const struct sequence *sequence) {
    return TAILQ_FIRST(&sequence->calls)->run->arrival;
}

static void ready_add(struct sequence_list *ready, struct sequence *sequence) {
    struct sequence *before = TAILQ_LAST(ready, sequence_list);
    while (before && first_arrival(before) > first_arrival(sequence)) {
        before = TAILQ_PREV(before, sequence_list, link);
    }
    sequence->in = ready;
    if (before) {
        TAILQ_INSERT_AFTER(ready, before, sequence, link);
    } else {
        TAILQ_INSERT_HEAD(ready, sequence, link);
    }
}

/* ---- slots ----------------------------------------------------------------------------------- */

/* The instance with the most free slots, which balances the load; NULL: none. */
static struct instance_sequences *instance_with_free_slot(struct sequences *all) {
    struct instance_sequences *best = NULL;
    for (size_t i = 0; i < all->n_instances; i++) {
        struct instance_sequences *instance = &all->instances[i];
        if (instance->n_free > 0 && (!best || instance->n_free > best->n_free)) {
            best = instance;
        }
    }
    return best;
}

static void assign_slot(struct sequences *all, struct instance_sequences *instance,
                        struct sequence *sequence) {
    sequence->instance = instance;
    instance->n_free--;
    for (size_t i = 0; instance->slots && i < all->slots_per_instance; i++) {
        if (!instance->slots[i]) {
            instance->slots[i] = sequence;
            sequence->slot = i;
            return;
        }
    }
}

static void sequence_update_list(struct sequences *all, struct sequence *sequence, uint64_t now_ns);

static void release_slot(struct sequences *all, struct sequence *sequence, uint64_t now_ns) {
    struct instance_sequences *instance = sequence->instance;
    struct sequence *next = TAILQ_FIRST(&all->backlog);
    instance->n_free++;
    if (instance->slots) {
        instance->slots[sequence->slot] = NULL;
    }
    if (next) {
        list_remove(next);
        assign_slot(all, instance, next);
        all->n_backlog_calls -= next->n_waiting;
        all->promoted = true;
        sequence_update_list(all, next, now_ns); /* it has waiting calls, so this does not
                                                    recurse further */
    }
}

static void sequence_free(struct sequences *all, struct sequence *sequence) {
    all->n_all--;
    metric_add(METRIC_SEQUENCES, -1);
    sequence_states_fini(sequence);
    free(sequence);
}

/* Moves the sequence to the list of its state. It may be freed. */
static void sequence_update_list(struct sequences *all, struct sequence *sequence,
                                 uint64_t now_ns) {
    bool waits = !TAILQ_EMPTY(&sequence->calls);
    if (!sequence->instance && waits) {
        return; /* it keeps its position */
    }
    list_remove(sequence);
    if (sequence->running) {
        assert(sequence->instance);
        list_add(&sequence->instance->running, sequence);
    } else if (waits) {
        call_states_bind(TAILQ_FIRST(&sequence->calls), sequence);
        ready_add(&sequence->instance->ready, sequence);
    } else if (sequence->open && sequence->instance) {
        sequence->idle_since_ns = now_ns;
        list_add(&all->idle, sequence);
    } else {
        if (sequence->open) {
            sequence_table_remove(all, sequence);
        }
        if (sequence->instance) {
            release_slot(all, sequence, now_ns);
        }
        sequence_free(all, sequence);
    }
}

void sequences_free(struct sequences *all) {
    struct sequence *sequence;
    while (all && (sequence = TAILQ_FIRST(&all->idle))) {
        list_remove(sequence);
        sequence_free(all, sequence);
    }
    for (size_t i = 0; all && all->instances && i < all->n_instances; i++) {
        assert(TAILQ_EMPTY(&all->instances[i].ready) && TAILQ_EMPTY(&all->instances[i].running));
        free(all->instances[i].slots);
    }
    if (all) {
        assert(TAILQ_EMPTY(&all->backlog) && all->n_all == 0 && all->n_backlog_calls == 0);
        free(all->instances);
        free(all->table);
        free(all);
    }
}

uint64_t sequences_expire_idle(struct sequences *all, uint64_t now_ns) {
    struct sequence *oldest;
    while ((oldest = TAILQ_FIRST(&all->idle))) {
        uint64_t most = UINT64_MAX - oldest->idle_since_ns;
        if (all->idle_ns >= most || oldest->idle_since_ns + all->idle_ns > now_ns) {
            return all->idle_ns >= most ? UINT64_MAX : oldest->idle_since_ns + all->idle_ns;
        }
        sequence_table_remove(all, oldest);
        sequence_update_list(all, oldest, now_ns);
    }
    return UINT64_MAX;
}

/* ---- calls ----------------------------------------------------------------------------------- */

enum status sequences_find(struct sequences *all, struct call *call, struct error *err) {
    char id[SEQUENCE_ID_TEXT_BYTES], name[QUOTED_NAME_BYTES];
    call->run->sequence = sequence_table_find(all, &call->run->sequence_params.id);
    if (call->run->sequence || call->run->sequence_params.start) {
        return ST_OK;
    }
    return error_set(
        err, ST_BAD_SEQUENCE,
        "inference request for sequence %s to model %s must specify the START flag on the first "
        "request of the sequence (sequence_start); "
        "it is closed by sequence_end, after max_sequence_idle_microseconds (%llu) without "
        "a request, when one of its requests is dropped from the queue, and when the "
        "model is loaded again",
        sequence_id_print(&call->run->sequence_params.id, id),
        quote_name_single(call->run->version->plan.spec.name, name),
        (unsigned long long)(all->idle_ns / NS_PER_US));
}

bool sequences_must_wait_for_slot(struct sequences *all, const struct call *call) {
    return call->run->sequence ? call->run->sequence->instance == NULL
                               : instance_with_free_slot(all) == NULL;
}

static struct sequence *sequence_new(struct sequences *all, const struct sequence_id *id) {
    struct sequence *sequence = calloc(1, sizeof(*sequence) + id->text.len);
    if (!sequence) {
        return NULL;
    }
    TAILQ_INIT(&sequence->calls);
    sequence->id = *id;
    if (id->text.len > 0) {
        memcpy(sequence->text, id->text.ptr, id->text.len);
        sequence->id.text.ptr = sequence->text;
    }
    bool grown = (all->table && all->n_open <= all->table_mask) || table_grow(all);
    if (!grown || !sequence_states_init(sequence, all->n_states)) {
        free(sequence);
        return NULL;
    }
    bucket_insert(all, sequence);
    sequence->open = true;
    all->n_open++;
    all->n_all++;
    metric_add(METRIC_SEQUENCES, 1);
    struct instance_sequences *instance = instance_with_free_slot(all);
    if (instance) {
        assign_slot(all, instance, sequence);
    } else {
        list_add(&all->backlog, sequence);
    }
    return sequence;
}

enum status sequences_add(struct sequences *all, struct call *call, struct error *err) {
    if (!call->run->sequence) {
        call->run->sequence = sequence_new(all, &call->run->sequence_params.id);
    }
    struct sequence *sequence = call->run->sequence;
    if (!sequence) {
        return error_no_memory(err, "another sequence");
    }
    call->run->arrival = ++all->n_arrived;
    TAILQ_INSERT_TAIL(&sequence->calls, call, run->sequence_link);
    sequence->n_waiting++;
    all->n_backlog_calls += sequence->instance == NULL;
    if (call->run->sequence_params.end) {
        sequence_table_remove(all, sequence);
    }
    sequence_update_list(all, sequence, call->queued_ns);
    return ST_OK;
}

/* The call no longer waits. */
static void unlink_waiting(struct sequences *all, struct sequence *sequence, struct call *call) {
    sequence->n_waiting--;
    all->n_continued_calls -= call->run->n_iterations > 0;
    TAILQ_REMOVE(&sequence->calls, call, run->sequence_link);
}

static void unlink_call(struct sequences *all, struct sequence *sequence, struct call *call) {
    all->n_backlog_calls -= sequence->instance == NULL;
    unlink_waiting(all, sequence, call);
    call->run->sequence = NULL;
}

/* Later calls of the sequence are dropped too: without this one the model's state would be
 * wrong. */
void sequences_drop(struct sequences *all, struct call *call, uint64_t now_ns,
                    struct call_list *followers) {
    struct sequence *sequence = call->run->sequence;
    struct call *follower = TAILQ_NEXT(call, run->sequence_link);
    unlink_call(all, sequence, call);
    while (follower && !follower->run->sequence_params.start) {
        struct call *next = TAILQ_NEXT(follower, run->sequence_link);
        unlink_call(all, sequence, follower);
        TAILQ_INSERT_TAIL(followers, follower, run->sequence_link);
        follower = next;
    }
    if (!follower && sequence->open) {
        sequence_table_remove(all, sequence);
    }
    all->promoted = all->promoted || follower; /* an instance that found the expired call in front
                                                  of it sleeps */
    sequence_update_list(all, sequence, now_ns);
}

void sequences_executed(struct sequences *all, size_t instance, uint64_t now_ns) {
    struct sequence_list *running = &all->instances[instance].running;
    struct sequence *sequence;
    while (!all->until_answered && (sequence = TAILQ_FIRST(running))) {
        sequence->running = false;
        sequence_update_list(all, sequence, now_ns);
    }
}

void sequences_answered(struct sequences *all, struct call *call, uint64_t now_ns) {
    struct sequence *sequence = call->run->sequence;
    call->run->sequence = NULL;
    sequence->running = false;
    sequence_update_list(all, sequence, now_ns);
}

void sequences_run_again(struct sequences *all, struct call *call, uint64_t now_ns) {
    struct sequence *sequence = call->run->sequence;
    call_states_release(call);
    call->run->arrival = ++all->n_arrived;
    TAILQ_INSERT_HEAD(&sequence->calls, call, run->sequence_link);
    sequence->n_waiting++;
    all->n_continued_calls++;
    sequence->running = false;
    sequence_update_list(all, sequence, now_ns);
}

/* ---- batches --------------------------------------------------------------------------------- */

/* The calls that an instance could execute now, beginning with the oldest. */
struct sequence_candidate {
    size_t n;          /* number of sequences, the first included */
    uint64_t until_ns; /* the earliest batch_wait_until_ns among them */
};

static bool is_expired(const struct sequence *sequence, uint64_t now_ns) {
    const struct call_run *run = TAILQ_FIRST(&sequence->calls)->run;
    return run->n_iterations == 0 && queue_deadline_passed(&run->queue_deadline, now_ns);
}

/* The oldest that has not expired; NULL: none. */
static struct sequence *oldest_in_time(const struct instance_sequences *instance, uint64_t now_ns) {
    struct sequence *head = TAILQ_FIRST(&instance->ready);
    while (head && is_expired(head, now_ns)) {
        head = TAILQ_NEXT(head, link);
    }
    return head;
}

/* `head` itself has not expired. */
static bool joins_batch(const struct call *head, const struct sequence *sequence, uint64_t now_ns) {
    const struct call *first = TAILQ_FIRST(&sequence->calls);
    return first == head || (!is_expired(sequence, now_ns) && batch_can_share(head, first));
}

/* Counts sequences that fit into `most` rows. */
static struct sequence_candidate collect_sequences(const struct sequence *head, size_t most,
                                                   uint64_t now_ns) {
    struct sequence_candidate candidate = {.until_ns = UINT64_MAX};
    for (const struct sequence *sequence = head; sequence && candidate.n < most;
         sequence = TAILQ_NEXT(sequence, link)) {
        if (joins_batch(TAILQ_FIRST(&head->calls), sequence, now_ns)) {
            uint64_t batch_wait_until_ns =
                TAILQ_FIRST(&sequence->calls)->run->queue_deadline.batch_wait_until_ns;
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

/* Returns: the batch size; *full: whether to run it without waiting for more. */
static size_t choose_size(const struct sequences *all, const struct batch_rules *rules,
                          const struct sequence_candidate *candidate, bool *full) {
    if (all->strategy == SEQUENCES_DIRECT) {
        *full = candidate->n >= all->min_batch_slots;
        return candidate->n;
    }
    size_t size = (size_t)batch_preferred_size(rules, candidate->n);
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

/* Marks the sequence's oldest call as running. */
static struct call *start_oldest_call(struct sequences *all, struct sequence *sequence) {
    struct call *call = TAILQ_FIRST(&sequence->calls);
    struct instance_sequences *instance = sequence->instance;
    unlink_waiting(all, sequence, call);
    call_states_start(call, sequence);
    if (!all->until_answered) {
        call->run->sequence = NULL; /* done when the execution ends, before the answer */
    }
    sequence->running = true;
    list_remove(sequence);
    list_add(&instance->running, sequence);
    return call;
}

size_t sequences_take(struct sequences *all, const struct batch_rules *rules, size_t instance,
                      struct call **batch, uint64_t now_ns) {
    struct sequence *sequence = oldest_in_time(&all->instances[instance], now_ns);
    bool full;
    struct sequence_candidate candidate =
        collect_sequences(sequence, max_batch_rows(all, rules), now_ns);
    size_t left = choose_size(all, rules, &candidate, &full), n = 0;
    const struct call *head = TAILQ_FIRST(&sequence->calls);
    for (size_t i = 0; all->strategy == SEQUENCES_DIRECT && i < all->slots_per_instance; i++) {
        batch[i] = NULL;
    }
    while (left > 0) { /* collect_sequences counted them in this same list */
        struct sequence *next = TAILQ_NEXT(sequence, link);
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
