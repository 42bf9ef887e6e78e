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

static size_t places_of(const struct model_config *config) {
    const struct model_sequences *wanted = &config->sequences;
    uint64_t rows = config->max_batch_size > 0 ? config->max_batch_size : 1;
    if (wanted->strategy == SEQUENCES_OLDEST) {
        return (size_t)(wanted->max_candidates > 0 ? wanted->max_candidates : rows);
    }
    return rows < INSTANCE_REQUESTS_MAX ? (size_t)rows : INSTANCE_REQUESTS_MAX;
}

static size_t worth_of(const struct model_sequences *config, size_t n_places) {
    double share = config->min_utilization * (double)n_places;
    size_t n = (size_t)share;
    n += (double)n < share;
    return n > 0 ? n : 1;
}

static bool lanes_make(struct sequences *all) {
    all->lanes = calloc(all->n_lanes, sizeof(*all->lanes));
    for (size_t i = 0; all->lanes && i < all->n_lanes; i++) {
        struct lane *lane = &all->lanes[i];
        lane->n_free = all->n_places;
        if (all->strategy == SEQUENCES_DIRECT) {
            lane->slots = calloc(all->n_places, sizeof(struct sequence *));
            if (!lane->slots) {
                return false;
            }
        }
    }
    return all->lanes != NULL;
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
        all->n_places = places_of(config);
        all->n_worth = worth_of(&config->sequences, all->n_places);
        all->idle_ns = config->sequences.idle_us < UINT64_MAX / NS_PER_US
                           ? config->sequences.idle_us * NS_PER_US
                           : UINT64_MAX;
        all->n_lanes = n_instances;
        hash_key_init(&all->key);
    }
    if (!all || !lanes_make(all)) {
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
static struct lane *lane_with_room(struct sequences *all) {
    struct lane *best = NULL;
    for (size_t i = 0; i < all->n_lanes; i++) {
        struct lane *lane = &all->lanes[i];
        if (lane->n_free > 0 && (!best || lane->n_free > best->n_free)) {
            best = lane;
        }
    }
    return best;
}

static void take_place(struct sequences *all, struct lane *lane, struct sequence *sequence) {
    sequence->lane = lane;
    lane->n_free--;
    for (size_t i = 0; lane->slots && i < all->n_places; i++) {
        if (!lane->slots[i]) {
            lane->slots[i] = sequence;
            sequence->slot = i;
            return;
        }
    }
}

static void settle(struct sequences *all, struct sequence *sequence, uint64_t now_ns);

static void give_place(struct sequences *all, struct sequence *sequence, uint64_t now_ns) {
    struct lane *lane = sequence->lane;
    struct sequence *next = all->backlog.first;
    lane->n_free++;
    if (lane->slots) {
        lane->slots[sequence->slot] = NULL;
    }
    if (next) {
        list_remove(next);
        take_place(all, lane, next);
        all->n_homeless -= next->n_waiting;
        all->promoted = true;
        settle(all, next, now_ns); /* something of it waits: it goes no further */
    }
}

static void sequence_free(struct sequences *all, struct sequence *sequence) {
    all->n_all--;
    metric_add(METRIC_SEQUENCES, -1);
    free(sequence);
}

/* Where it belongs now. It may be gone afterwards. */
static void settle(struct sequences *all, struct sequence *sequence, uint64_t now_ns) {
    if (!sequence->lane && sequence->first) {
        return; /* it keeps its turn */
    }
    list_remove(sequence);
    if (sequence->running) {
        assert(sequence->lane);
        list_add(&sequence->lane->running, sequence);
    } else if (sequence->first) {
        ready_add(&sequence->lane->ready, sequence);
    } else if (sequence->open && sequence->lane) {
        sequence->rests_ns = now_ns;
        list_add(&all->resting, sequence);
    } else {
        if (sequence->open) {
            sequence_table_remove(all, sequence);
        }
        if (sequence->lane) {
            give_place(all, sequence, now_ns);
        }
        sequence_free(all, sequence);
    }
}

void sequences_free(struct sequences *all) {
    while (all && all->resting.first) {
        struct sequence *sequence = all->resting.first;
        list_remove(sequence);
        sequence_free(all, sequence);
    }
    for (size_t i = 0; all && all->lanes && i < all->n_lanes; i++) {
        assert(!all->lanes[i].ready.first && !all->lanes[i].running.first);
        free(all->lanes[i].slots);
    }
    if (all) {
        assert(!all->backlog.first && all->n_all == 0 && all->n_homeless == 0);
        free(all->lanes);
        free(all->table);
        free(all);
    }
}

uint64_t sequences_reap(struct sequences *all, uint64_t now_ns) {
    while (all->resting.first) {
        struct sequence *oldest = all->resting.first;
        uint64_t most = UINT64_MAX - oldest->rests_ns;
        if (all->idle_ns >= most || oldest->rests_ns + all->idle_ns > now_ns) {
            return all->idle_ns >= most ? UINT64_MAX : oldest->rests_ns + all->idle_ns;
        }
        sequence_table_remove(all, oldest);
        settle(all, oldest, now_ns);
    }
    return UINT64_MAX;
}

/* ---- requests -------------------------------------------------------------------------------- */

enum status sequences_find(struct sequences *all, struct call *call, struct error *err) {
    char id[SEQUENCE_ID_TEXT_BYTES], name[TENSOR_NAME_TEXT_BYTES];
    call->sequence = sequence_table_find(all, &call->ask.id);
    if (call->sequence || call->ask.start) {
        return ST_OK;
    }
    return error_set(err, ST_BAD_SEQUENCE,
                     "sequence %s of model %s is not open: its first request needs sequence_start; "
                     "it is over after sequence_end, after a rest longer than "
                     "max_sequence_idle_microseconds, %llu, when one of its requests was given up "
                     "before it was executed, and when the model is loaded again",
                     sequence_id_print(&call->ask.id, id),
                     tensor_name_print(call->version->plan.spec.name, name),
                     (unsigned long long)(all->idle_ns / NS_PER_US));
}

bool sequences_lack_place(struct sequences *all, const struct call *call) {
    return call->sequence ? call->sequence->lane == NULL : lane_with_room(all) == NULL;
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
    struct lane *lane = lane_with_room(all);
    if (lane) {
        take_place(all, lane, sequence);
    } else {
        list_add(&all->backlog, sequence);
    }
    return sequence;
}

static void append(struct sequences *all, struct sequence *sequence, struct call *call) {
    call->arrival = ++all->n_arrived;
    call->later = NULL;
    call->earlier = sequence->last;
    if (sequence->last) {
        sequence->last->later = call;
    } else {
        sequence->first = call;
    }
    sequence->last = call;
    sequence->n_waiting++;
    all->n_homeless += sequence->lane == NULL;
}

enum status sequences_add(struct sequences *all, struct call *call, struct error *err) {
    if (!call->sequence) {
        call->sequence = sequence_new(all, &call->ask.id);
    } else if (call->ask.start) {
        char id[SEQUENCE_ID_TEXT_BYTES];
        sequence_id_print(&call->ask.id, id);
        log_event(LOG_WARNING, "a sequence begins again although it had not ended",
                  LOG_STR("model", call->version->plan.spec.name), LOG_TEXT_OF("sequence", id));
    }
    struct sequence *sequence = call->sequence;
    if (!sequence) {
        return error_set(err, ST_NO_MEMORY, "out of memory for another sequence");
    }
    append(all, sequence, call);
    if (call->ask.end) {
        sequence_table_remove(all, sequence);
    }
    settle(all, sequence, call->queued_ns);
    return ST_OK;
}

static void unlink_call(struct sequences *all, struct sequence *sequence, struct call *call) {
    sequence->n_waiting--;
    all->n_homeless -= sequence->lane == NULL;
    if (call->earlier) {
        call->earlier->later = call->later;
    } else {
        sequence->first = call->later;
    }
    if (call->later) {
        call->later->earlier = call->earlier;
    } else {
        sequence->last = call->earlier;
    }
    call->earlier = call->later = NULL;
    call->sequence = NULL;
}

/* What follows can't be understood without it, until the sequence begins again. */
struct call *sequences_drop(struct sequences *all, struct call *call, uint64_t now_ns) {
    struct sequence *sequence = call->sequence;
    struct call *follower = call->later, *dropped = NULL, **end = &dropped;
    unlink_call(all, sequence, call);
    while (follower && !follower->ask.start) {
        struct call *next = follower->later;
        unlink_call(all, sequence, follower);
        *end = follower;
        end = &follower->later;
        follower = next;
    }
    if (!follower && sequence->open) {
        sequence_table_remove(all, sequence);
    }
    settle(all, sequence, now_ns);
    return dropped;
}

void sequences_executed(struct sequences *all, size_t lane, uint64_t now_ns) {
    struct sequence_list *running = &all->lanes[lane].running;
    while (all->strategy == SEQUENCES_DIRECT && running->first) {
        running->first->running = false;
        settle(all, running->first, now_ns);
    }
}

void sequences_answered(struct sequences *all, struct call *call, uint64_t now_ns) {
    struct sequence *sequence = call->sequence;
    call->sequence = NULL;
    sequence->running = false;
    settle(all, sequence, now_ns);
}
