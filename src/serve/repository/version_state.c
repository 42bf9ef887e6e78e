/* Prints instances and queues. Waiting calls are copied under the lock and printed without it,
 * because a call may be freed as soon as the lock is released. */
#include "serve/repository/version_state.h"

#include <string.h>

#include "core/base/plural.h"
#include "core/event/clock.h"
#include "serve/scheduler/statistics/statistics.h"
#include "serve/scheduler/version.h"

enum { ID_BYTES = 40 };

struct waiting_call {
    uint64_t queued_ns, rows;
    char id[ID_BYTES];
};

/* Truncated, and safe to print. */
static void copy_id(const sluice_request *request, char out[ID_BYTES]) {
    size_t n = request->id_bytes < ID_BYTES - 1 ? request->id_bytes : ID_BYTES - 1;
    for (size_t i = 0; i < n; i++) {
        char c = request->id[i];
        out[i] = c > 0x20 && c < 0x7f ? c : '?';
    }
    out[n] = '\0';
}

/* Returns: the number of calls in `out`. */
static size_t copy_waiting_calls(struct scheduler *scheduler, struct waiting_call *out,
                                 size_t *n_all) {
    size_t n = 0;
    lock_acquire(&scheduler->lock);
    *n_all = scheduler->queue.n;
    for (const struct call *call = TAILQ_FIRST(&scheduler->queue.calls);
         call && n < MODEL_STATE_WAITING; call = TAILQ_NEXT(call, run->queue_link), n++) {
        out[n] = (struct waiting_call){.queued_ns = call->queued_ns,
                                       .rows = call->run->backend_request.batch};
        copy_id(&call->run->backend_request, out[n].id);
    }
    lock_release(&scheduler->lock);
    return n;
}

static double ms_since(uint64_t since_ns) {
    return (double)clock_between_ns(since_ns, clock_now_ns()) / 1e6;
}

static void print_instances(struct model_version *version, struct buf *out) {
    size_t n_busy = 0;
    for (size_t i = 0; i < version->n_instances; i++) {
        struct statistics_instance instance;
        model_version_instance(version, i, &instance);
        if (instance.since_ns == 0 || n_busy++ >= MODEL_STATE_INSTANCES) {
            continue;
        }
        buf_printf(out, "  instance %zu: %llu request%s, %llu row%s, for %.3f ms\n", i,
                   (unsigned long long)instance.requests, plural_s(instance.requests),
                   (unsigned long long)instance.size, plural_s(instance.size),
                   ms_since(instance.since_ns));
    }
    if (n_busy > MODEL_STATE_INSTANCES) {
        buf_printf(out, "  and %zu more that execute\n", n_busy - MODEL_STATE_INSTANCES);
    }
}

void model_version_dump(struct model_version *version, struct buf *out) {
    const struct model_spec *spec = &version->plan.spec;
    struct waiting_call waiting[MODEL_STATE_WAITING];
    uint64_t n_queued, n_running, n_instances;
    size_t n_all, n = copy_waiting_calls(&version->scheduler, waiting, &n_all);
    model_version_gauges(version, &n_queued, &n_running, &n_instances);
    buf_printf(out, "model %.*s %.*s: %zu waiting, %llu running, %llu instance%s\n",
               STR_ARG(spec->name), STR_ARG(spec->version_text), n_all,
               (unsigned long long)n_running, (unsigned long long)n_instances,
               plural_s(n_instances));
    print_instances(version, out);
    for (size_t i = 0; i < n; i++) {
        buf_printf(out, "  waits for %.3f ms: %llu row%s%s%s\n", ms_since(waiting[i].queued_ns),
                   (unsigned long long)waiting[i].rows, plural_s(waiting[i].rows),
                   waiting[i].id[0] ? ", id " : "", waiting[i].id);
    }
    if (n < n_all) {
        buf_printf(out, "  and %zu more that wait\n", n_all - n);
    }
}
