/* The registry of metrics. Only the thread that owns a block writes to it, with a relaxed load and
 * store, so that counting is a plain add. A reader sums the blocks under the registry's lock, which
 * only registration and ending threads take besides. A thread that ends adds its block to a shared
 * total.
 *
 * The registry is a global of the process, because code everywhere counts and has no handle to
 * pass. Histograms, and metrics whose labels are not known beforehand, belong to the objects that
 * they describe; only their names are here. */
#include "core/base/metric/metric.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "core/base/compiler.h"

enum {
    FIRST_ERROR_CELL = METRIC_COUNT_, /* where the errors begin, by protocol and status */
    N_CELLS = FIRST_ERROR_CELL + (int)METRIC_PROTOCOLS * (int)ST_COUNT_,
};

struct metric_block {
    _Atomic int64_t values[N_CELLS];
    LIST_ENTRY(metric_block) link;
};

struct metric_registry {
    pthread_mutex_t lock;
    pthread_once_t once;
    pthread_key_t key; /* its destructor runs when a thread ends */
    LIST_HEAD(, metric_block) blocks;
    _Atomic int64_t total[N_CELLS]; /* of threads that ended, and of those without a block */
};

static struct metric_registry registry = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .once = PTHREAD_ONCE_INIT,
};
static THREAD_LOCAL struct metric_block *thread_block;

struct metric_row {
    const char *exposed;
    const char *help;
    enum metric_kind kind;
};

#define FAMILY(name, kind, exposed, help)
#define METRIC(name, kind, exposed, help) [METRIC_##name] = {exposed, help, METRIC_KIND_##kind},
static const struct metric_row metric_rows[METRIC_COUNT_] = {
#include "core/base/metric/metric.def"
};
#undef METRIC
#undef FAMILY

#define METRIC(name, kind, exposed, help)
#define FAMILY(name, kind, exposed, help)                                                          \
    [METRIC_FAMILY_##name] = {exposed, help, METRIC_KIND_##kind},
static const struct metric_row family_rows[METRIC_FAMILIES] = {
#include "core/base/metric/metric.def"
};
#undef METRIC
#undef FAMILY

static void on_thread_exit(void *argument) {
    struct metric_block *block = argument;
    pthread_mutex_lock(&registry.lock);
    for (int i = 0; i < N_CELLS; i++) {
        int64_t value = atomic_load_explicit(&block->values[i], memory_order_relaxed);
        atomic_fetch_add_explicit(&registry.total[i], value, memory_order_relaxed);
    }
    LIST_REMOVE(block, link);
    pthread_mutex_unlock(&registry.lock);
    thread_block = NULL; /* a later destructor of this thread may still count: it registers a new
                            block */
    free(block);
}

static void registry_init(void) {
    if (pthread_key_create(&registry.key, on_thread_exit) != 0) {
        abort(); /* at the first count of the process: all keys are in use */
    }
}

/* Returns: NULL when out of memory. */
static struct metric_block *block_register(void) {
    pthread_once(&registry.once, registry_init);
    struct metric_block *block = calloc(1, sizeof(*block));
    if (!block || pthread_setspecific(registry.key, block) != 0) {
        free(block);
        return NULL;
    }
    pthread_mutex_lock(&registry.lock);
    LIST_INSERT_HEAD(&registry.blocks, block, link);
    pthread_mutex_unlock(&registry.lock);
    thread_block = block;
    return block;
}

/* The thread's first count: registers its block. */
static void cell_add_first(int cell, int64_t delta) __attribute__((cold, noinline));

static inline void cell_add(int cell, int64_t delta) {
    struct metric_block *block = thread_block;
    if (!block) {
        cell_add_first(cell, delta);
        return;
    }
    int64_t value = atomic_load_explicit(&block->values[cell], memory_order_relaxed);
    atomic_store_explicit(&block->values[cell], value + delta, memory_order_relaxed);
}

static void cell_add_first(int cell, int64_t delta) {
    if (block_register()) {
        cell_add(cell, delta);
    } else {
        atomic_fetch_add_explicit(&registry.total[cell], delta, memory_order_relaxed);
    }
}

static int error_cell(enum metric_protocol protocol, enum status status) {
    return FIRST_ERROR_CELL + (int)protocol * (int)ST_COUNT_ + (int)status;
}

void metric_add(enum metric metric, int64_t delta) {
    cell_add((int)metric, delta);
}

void metric_add_error(enum metric_protocol protocol, enum status status) {
    cell_add(error_cell(protocol, status), 1);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Cells `first` to `first` + `n`, summed. */
static void read_cells(int first, int n, int64_t *out) {
    pthread_mutex_lock(&registry.lock);
    for (int i = 0; i < n; i++) {
        out[i] = atomic_load_explicit(&registry.total[first + i], memory_order_relaxed);
    }
    struct metric_block *block;
    LIST_FOREACH(block, &registry.blocks, link) {
        for (int i = 0; i < n; i++) {
            out[i] += atomic_load_explicit(&block->values[first + i], memory_order_relaxed);
        }
    }
    pthread_mutex_unlock(&registry.lock);
}

int64_t metric_read(enum metric metric) {
    int64_t value;
    read_cells((int)metric, 1, &value);
    return value;
}

/* ---- printing -------------------------------------------------------------------------------- */

/* The metric's name without its labels. */
static struct str name_of(const struct metric_row *row) {
    return str_make(row->exposed, strcspn(row->exposed, "{"));
}

/* The text inside the braces. */
static struct str labels_of(const struct metric_row *row) {
    const char *begin = strchr(row->exposed, '{');
    return begin ? str_make(begin + 1, strlen(begin) - 2) : STR("");
}

static void begin_family(struct metric_text *text, const struct metric_row *row) {
    metric_text_begin(text, name_of(row), row->kind, str_of(row->help));
}

void metric_family_begin(struct metric_text *text, enum metric_family family) {
    begin_family(text, &family_rows[family]);
}

static void visit_cells(const int64_t *values,
                        void (*visit)(void *user, const char *protocol, enum status status,
                                      int64_t n),
                        void *user) {
    static const char *const protocols[METRIC_PROTOCOLS] = {[METRIC_HTTP] = "http",
                                                            [METRIC_GRPC] = "grpc",
                                                            [METRIC_MIP] = "mip",
                                                            [METRIC_PICK] = "pick"};
    for (int i = 0; i < N_CELLS - FIRST_ERROR_CELL; i++) {
        if (values[i] != 0) {
            visit(user, protocols[i / (int)ST_COUNT_], (enum status)(i % (int)ST_COUNT_),
                  values[i]);
        }
    }
}

void metric_visit_errors(void (*visit)(void *user, const char *protocol, enum status status,
                                       int64_t n),
                         void *user) {
    int64_t values[N_CELLS - FIRST_ERROR_CELL];
    read_cells(FIRST_ERROR_CELL, N_CELLS - FIRST_ERROR_CELL, values);
    visit_cells(values, visit, user);
}

static void print_error(void *user, const char *protocol, enum status status, int64_t n) {
    struct metric_text *text = user;
    struct buf labels;
    buf_init(&labels, text->out->arena, 64);
    metric_label_add(&labels, "protocol", str_of(protocol));
    metric_label_add(&labels, "reason", str_of(status_name(status)));
    metric_text_i64(text, buf_str(&labels), n);
}

void metric_print(struct metric_text *text, const char *excluded_prefix) {
    int64_t values[N_CELLS];
    read_cells(0, N_CELLS, values);
    for (int i = 0; i < METRIC_COUNT_; i++) {
        const struct metric_row *row = &metric_rows[i];
        if (excluded_prefix && str_starts_with(name_of(row), str_of(excluded_prefix))) {
            continue;
        }
        if (i == 0 || !str_eq(name_of(row), name_of(row - 1))) {
            begin_family(text, row);
        }
        metric_text_i64(text, labels_of(row), values[i]);
    }
    metric_family_begin(text, METRIC_FAMILY_ERRORS);
    visit_cells(values + FIRST_ERROR_CELL, print_error, text);
}
