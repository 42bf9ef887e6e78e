/* Sequences come, get a place, rest, and go. Each is in the one list that says what it waits for;
 * `settle` puts it there whenever something about it has changed. */
#include "serve/scheduler/sequence/sequence.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/metric/metric.h"
#include "serve/scheduler/instance.h"
#include "serve/scheduler/version.h"

enum { NS_PER_US = 1000 };

/* ---- all of them ----------------------------------------------------------------------------- */

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
        hash_key_init(&all->key);
    }
    if (!all || !instances_alloc(all)) {
        sequences_free(all);
        return error_set(err, ST_NO_MEMORY, "out of memory for the model's sequences");
    }
    *out = all;
    return ST_OK;
}

/* ---- lists ----------------------------------------------------------------------------------- */

static void list_remove(struct sequence *sequence) {
    struct sequence_list *list = sequence->in;
    if (!list) {
        return;
    }
    if (sequence->prev) {
        sequence->prev->next = sequence->next;
    } else {
        list->first = sequence->next;
    }
    if (sequence->next) {
        sequence->next->prev = sequence->prev;
    } else {
        list->last = sequence->prev;
    }
    list->n--;
    sequence->in = NULL;
    sequence->next = sequence->prev = NULL;
}

/* Behind `before`; NULL: at the front. */
static void list_insert(struct sequence_list *list, struct sequence *before,
                        struct sequence *sequence) {
    sequence->in = list;
    sequence->prev = before;
    sequence->next = before ? before->next : list->first;
    if (sequence->prev) {
        sequence->prev->next = sequence;
    } else {
        list->first = sequence;
    }
    if (sequence->next) {
        sequence->next->prev = sequence;
    } else {
        list->last = sequence;
    }
    list->n++;
}

static void list_add(struct sequence_list *list, struct sequence *sequence) {
    list_insert(list, list->last, sequence);
}

void sequence_list_move(struct sequence_list *list, struct sequence *sequence) {
    list_remove(sequence);
    list_add(list, sequence);
}

static void ready_add(struct sequence_list *ready, struct sequence *sequence) {
    struct sequence *before = ready->last;
    while (before && before->first->arrival > sequence->first->arrival) {
        before = before->prev;
    }
    list_insert(ready, before, sequence);
}

/* ---- places ---------------------------------------------------------------------------------- */

/* The lane with the most places that are free, so that instances share the work; NULL: none is. */
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
    struct sequence *next = all->backlog.first;
    instance->n_free++;
    if (instance->slots) {
        instance->slots[sequence->slot] = NULL;
    }
    if (next) {
        list_remove(next);
        assign_slot(all, instance, next);
        all->n_backlog_calls -= next->n_waiting;
        all->promoted = true;
        sequence_update_list(all, next, now_ns); /* something of it waits: it goes no further */
    }
}

static void sequence_free(struct sequences *all, struct sequence *sequence) {
    all->n_all--;
    metric_add(METRIC_SEQUENCES, -1);
    free(sequence);
}

/* Where it belongs now. It may be gone afterwards. */
static void sequence_update_list(struct sequences *all, struct sequence *sequence,
                                 uint64_t now_ns) {
    if (!sequence->instance && sequence->first) {
        return; /* it keeps its turn */
    }
    list_remove(sequence);
    if (sequence->running) {
        assert(sequence->instance);
        list_add(&sequence->instance->running, sequence);
    } else if (sequence->first) {
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
    while (all && all->idle.first) {
        struct sequence *sequence = all->idle.first;
        list_remove(sequence);
        sequence_free(all, sequence);
    }
    for (size_t i = 0; all && all->instances && i < all->n_instances; i++) {
        assert(!all->instances[i].ready.first && !all->instances[i].running.first);
        free(all->instances[i].slots);
    }
    if (all) {
        assert(!all->backlog.first && all->n_all == 0 && all->n_backlog_calls == 0);
        free(all->instances);
        free(all->table);
        free(all);
    }
}

uint64_t sequences_expire_idle(struct sequences *all, uint64_t now_ns) {
    while (all->idle.first) {
        struct sequence *oldest = all->idle.first;
        uint64_t most = UINT64_MAX - oldest->idle_since_ns;
        if (all->idle_ns >= most || oldest->idle_since_ns + all->idle_ns > now_ns) {
            return all->idle_ns >= most ? UINT64_MAX : oldest->idle_since_ns + all->idle_ns;
        }
        sequence_table_remove(all, oldest);
        sequence_update_list(all, oldest, now_ns);
    }
    return UINT64_MAX;
}

/* ---- requests -------------------------------------------------------------------------------- */

enum status sequences_find(struct sequences *all, struct call *call, struct error *err) {
    char id[SEQUENCE_ID_TEXT_BYTES], name[TENSOR_NAME_TEXT_BYTES];
    call->sequence = sequence_table_find(all, &call->sequence_params.id);
    if (call->sequence || call->sequence_params.start) {
        return ST_OK;
    }
    return error_set(err, ST_BAD_SEQUENCE,
                     "sequence %s of model %s is not open: its first request needs sequence_start; "
                     "it is over after sequence_end, after a rest longer than "
                     "max_sequence_idle_microseconds, %llu, when one of its requests was given up "
                     "before it was executed, and when the model is loaded again",
                     sequence_id_print(&call->sequence_params.id, id),
                     tensor_name_print(call->version->plan.spec.name, name),
                     (unsigned long long)(all->idle_ns / NS_PER_US));
}

bool sequences_must_wait_for_slot(struct sequences *all, const struct call *call) {
    return call->sequence ? call->sequence->instance == NULL : instance_with_free_slot(all) == NULL;
}

static struct sequence *sequence_new(struct sequences *all, const struct sequence_id *id) {
    struct sequence *sequence = calloc(1, sizeof(*sequence) + id->text.len);
    if (!sequence) {
        return NULL;
    }
    sequence->id = *id;
    if (id->text.len > 0) {
        memcpy(sequence->text, id->text.ptr, id->text.len);
        sequence->id.text.ptr = sequence->text;
    }
    if (!sequence_table_add(all, sequence)) {
        free(sequence);
        return NULL;
    }
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

static void append_call(struct sequences *all, struct sequence *sequence, struct call *call) {
    call->arrival = ++all->n_arrived;
    call->sequence_next = NULL;
    call->sequence_prev = sequence->last;
    if (sequence->last) {
        sequence->last->sequence_next = call;
    } else {
        sequence->first = call;
    }
    sequence->last = call;
    sequence->n_waiting++;
    all->n_backlog_calls += sequence->instance == NULL;
}

enum status sequences_add(struct sequences *all, struct call *call, struct error *err) {
    if (!call->sequence) {
        call->sequence = sequence_new(all, &call->sequence_params.id);
    } else if (call->sequence_params.start) {
        char id[SEQUENCE_ID_TEXT_BYTES];
        sequence_id_print(&call->sequence_params.id, id);
        log_event(LOG_WARNING, "a sequence begins again although it had not ended",
                  LOG_STR("model", call->version->plan.spec.name), LOG_CSTR("sequence", id));
    }
    struct sequence *sequence = call->sequence;
    if (!sequence) {
        return error_set(err, ST_NO_MEMORY, "out of memory for another sequence");
    }
    append_call(all, sequence, call);
    if (call->sequence_params.end) {
        sequence_table_remove(all, sequence);
    }
    sequence_update_list(all, sequence, call->queued_ns);
    return ST_OK;
}

static void unlink_call(struct sequences *all, struct sequence *sequence, struct call *call) {
    sequence->n_waiting--;
    all->n_backlog_calls -= sequence->instance == NULL;
    if (call->sequence_prev) {
        call->sequence_prev->sequence_next = call->sequence_next;
    } else {
        sequence->first = call->sequence_next;
    }
    if (call->sequence_next) {
        call->sequence_next->sequence_prev = call->sequence_prev;
    } else {
        sequence->last = call->sequence_prev;
    }
    call->sequence_prev = call->sequence_next = NULL;
    call->sequence = NULL;
}

/* What follows can't be understood without it, until the sequence begins again. */
struct call *sequences_drop(struct sequences *all, struct call *call, uint64_t now_ns) {
    struct sequence *sequence = call->sequence;
    struct call *follower = call->sequence_next, *dropped = NULL, **end = &dropped;
    unlink_call(all, sequence, call);
    while (follower && !follower->sequence_params.start) {
        struct call *next = follower->sequence_next;
        unlink_call(all, sequence, follower);
        *end = follower;
        end = &follower->sequence_next;
        follower = next;
    }
    if (!follower && sequence->open) {
        sequence_table_remove(all, sequence);
    }
    sequence_update_list(all, sequence, now_ns);
    return dropped;
}

void sequences_executed(struct sequences *all, size_t instance, uint64_t now_ns) {
    struct sequence_list *running = &all->instances[instance].running;
    while (all->strategy == SEQUENCES_DIRECT && running->first) {
        running->first->running = false;
        sequence_update_list(all, running->first, now_ns);
    }
}

void sequences_answered(struct sequences *all, struct call *call, uint64_t now_ns) {
    struct sequence *sequence = call->sequence;
    call->sequence = NULL;
    sequence->running = false;
    sequence_update_list(all, sequence, now_ns);
}
