/* The registry of metrics. Only the thread that owns a block writes to it, with a relaxed load and
 * store, so that counting is a plain add; a reader takes the registry's lock, which only
 * registering and ending threads take too, and sums. A thread that ends folds its block into a
 * shared total.
 *
 * The registry is the one thing here that is the process's own: what counts is everywhere and has
 * no handle to pass. It refuses histograms and labels whose values are not known beforehand: those
 * belong to whoever has the objects. */
#include "base/metric.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct metric_block {
    _Atomic int64_t values[METRIC_COUNT_];
    struct metric_block *next;
    struct metric_block *prev;
};

struct metric_registry {
    pthread_mutex_t lock;
    pthread_once_t once;
    pthread_key_t key; /* its destructor sees threads end */
    struct metric_block *blocks;
    _Atomic int64_t total[METRIC_COUNT_]; /* of threads that ended, and of those without a block */
};

static struct metric_registry registry = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .once = PTHREAD_ONCE_INIT,
};
static _Thread_local struct metric_block *own_block;

struct metric_row {
    const char *exposed;
    const char *help;
    enum { COUNTER, GAUGE } kind;
};

#define METRIC(name, kind, exposed, help) [METRIC_##name] = {exposed, help, kind},
static const struct metric_row metric_rows[METRIC_COUNT_] = {
#include "base/metric.def"
};
#undef METRIC

static void thread_ended(void *argument) {
    struct metric_block *block = argument;
    pthread_mutex_lock(&registry.lock);
    for (int i = 0; i < METRIC_COUNT_; i++) {
        int64_t value = atomic_load_explicit(&block->values[i], memory_order_relaxed);
        atomic_fetch_add_explicit(&registry.total[i], value, memory_order_relaxed);
    }
    if (block->prev) {
        block->prev->next = block->next;
    } else {
        registry.blocks = block->next;
    }
    if (block->next) {
        block->next->prev = block->prev;
    }
    pthread_mutex_unlock(&registry.lock);
    own_block = NULL; /* a later destructor of this thread may still count: it gets a new one */
    free(block);
}

static void registry_start(void) {
    if (pthread_key_create(&registry.key, thread_ended) != 0) {
        abort(); /* at the first count of the process: no key is left of a thousand */
    }
}

/* Returns: NULL when memory is out. */
static struct metric_block *block_register(void) {
    pthread_once(&registry.once, registry_start);
    struct metric_block *block = calloc(1, sizeof(*block));
    if (!block || pthread_setspecific(registry.key, block) != 0) {
        free(block);
        return NULL;
    }
    pthread_mutex_lock(&registry.lock);
    block->next = registry.blocks;
    if (block->next) {
        block->next->prev = block;
    }
    registry.blocks = block;
    pthread_mutex_unlock(&registry.lock);
    own_block = block;
    return block;
}

void metric_add(enum metric metric, int64_t delta) {
    struct metric_block *block = own_block ? own_block : block_register();
    if (!block) {
        atomic_fetch_add_explicit(&registry.total[metric], delta, memory_order_relaxed);
        return;
    }
    int64_t value = atomic_load_explicit(&block->values[metric], memory_order_relaxed);
    atomic_store_explicit(&block->values[metric], value + delta, memory_order_relaxed);
}

int64_t metric_read(enum metric metric) {
    pthread_mutex_lock(&registry.lock);
    int64_t sum = atomic_load_explicit(&registry.total[metric], memory_order_relaxed);
    for (struct metric_block *block = registry.blocks; block; block = block->next) {
        sum += atomic_load_explicit(&block->values[metric], memory_order_relaxed);
    }
    pthread_mutex_unlock(&registry.lock);
    return sum;
}

/* The name without labels. */
static struct str family(const struct metric_row *row) {
    return str_make(row->exposed, strcspn(row->exposed, "{"));
}

static void print_family(struct buf *out, const struct metric_row *row) {
    struct str name = family(row);
    buf_printf(out, "# HELP %.*s %s\n# TYPE %.*s %s\n", (int)name.len, name.ptr, row->help,
               (int)name.len, name.ptr, row->kind == COUNTER ? "counter" : "gauge");
}

void metric_print(struct buf *out) {
    for (int i = 0; i < METRIC_COUNT_; i++) {
        const struct metric_row *row = &metric_rows[i];
        if (i == 0 || !str_eq(family(row), family(row - 1))) {
            print_family(out, row);
        }
        buf_printf(out, "%s ", row->exposed);
        buf_add_i64(out, metric_read((enum metric)i));
        buf_add_char(out, '\n');
    }
}
