/* Batches are formed in order of arrival: the oldest call is always included, and a later call
 * never takes rows that an earlier one would fit into. */
#include "serve/scheduler/batch.h"

#include "serve/config/batch_layout.h"
#include "serve/scheduler/version.h"

/* The most calls that are skipped because they don't fit: bounds the scan under the lock when the
 * queue is full of calls of other shapes. */
enum { MAX_SKIPPED_CALLS = 512 };

static struct str param_name(const sluice_param *param) {
    return str_make(param->name, param->name_bytes);
}

static bool param_eq(const sluice_param *a, const sluice_param *b) {
    if (a->kind != b->kind || !str_eq(param_name(a), param_name(b))) {
        return false;
    }
    switch (a->kind) {
    case SLUICE_PARAM_BOOL:
        return a->boolean == b->boolean;
    case SLUICE_PARAM_INT64:
        return a->int64 == b->int64;
    case SLUICE_PARAM_UINT64:
        return a->uint64 == b->uint64;
    case SLUICE_PARAM_DOUBLE:
        return a->number == b->number;
    case SLUICE_PARAM_STRING:
        return str_eq(str_make(a->string, a->string_bytes), str_make(b->string, b->string_bytes));
    }
    return false;
}

/* Parameters that only the scheduler reads are not part of the request. */
static bool params_eq(const sluice_request *a, const sluice_request *b) {
    if (a->n_params != b->n_params) {
        return false;
    }
    for (size_t i = 0; i < a->n_params; i++) {
        if (!param_eq(&a->params[i], &b->params[i])) {
            return false;
        }
    }
    return true;
}

static bool input_eq(const sluice_input *a, const sluice_input *b) {
    return a->index == b->index && a->rank == b->rank && a->rank > 0 &&
           memcmp(a->dims + 1, b->dims + 1, (a->rank - 1) * sizeof *a->dims) == 0;
}

/* Returns: whether the layout joins inputs of unequal shapes. */
static bool may_differ(const struct batch_layout *layout, const sluice_input *a,
                       const sluice_input *b) {
    return layout && a->index == b->index && a->rank == b->rank && a->rank > 0 &&
           layout->inputs[a->index].kind != INPUT_ROWS;
}

bool batch_can_share(const struct call *a, const struct call *b) {
    const sluice_request *left = &a->run->backend_request, *right = &b->run->backend_request;
    if (a->batch_apart != b->batch_apart || left->n_inputs != right->n_inputs ||
        left->n_inputs == 0) {
        return false;
    }
    for (size_t i = 0; i < left->n_inputs; i++) {
        if (!input_eq(&left->inputs[i], &right->inputs[i]) &&
            !may_differ(a->run->version->plan.layout, &left->inputs[i], &right->inputs[i])) {
            return false;
        }
    }
    return params_eq(left, right);
}

uint64_t batch_rows(struct call *const *batch, size_t n) {
    uint64_t rows = 0;
    for (size_t i = 0; i < n; i++) {
        rows += batch[i]->run->backend_request.batch;
    }
    return rows;
}

uint64_t batch_preferred_size(const struct batch_rules *rules, uint64_t rows) {
    uint64_t best = 0;
    for (size_t i = 0; i < rules->n_preferred; i++) {
        uint64_t size = rules->preferred[i];
        best = size <= rows && size > best ? size : best;
    }
    return best;
}

static bool is_preferred(const struct batch_rules *rules, uint64_t rows) {
    return rows > 0 && batch_preferred_size(rules, rows) == rows;
}

/* The calls from `head` on that fit into a batch. *cut: those of them that are executed without
 * waiting for more, as their rows are a preferred size or one more call exceeds the largest;
 * n_calls 0: none. */
static struct batch_candidate collect_batch(const struct batch_rules *rules,
                                            const struct call *head, size_t max, uint64_t now_ns,
                                            struct batch_candidate *cut) {
    struct batch_candidate candidate = {.rows = head->run->backend_request.batch,
                                        .n_calls = 1,
                                        .until_ns = head->run->queue_deadline.batch_wait_until_ns};
    const uint64_t largest = batch_preferred_size(rules, UINT64_MAX); /* 0: none */
    size_t n_skipped = 0;
    const struct call *call = TAILQ_NEXT(head, run->queue_link);
    *cut = is_preferred(rules, candidate.rows) ? candidate : (struct batch_candidate){.n_calls = 0};
    for (; call && candidate.n_calls < max && n_skipped < MAX_SKIPPED_CALLS &&
           (largest == 0 || candidate.rows < largest);
         call = TAILQ_NEXT(call, run->queue_link)) {
        const uint64_t rows = call->run->backend_request.batch;
        if (queue_deadline_passed(&call->run->queue_deadline, now_ns)) {
            n_skipped++;
            continue;
        }
        if (call->run->queue_deadline.batch_wait_until_ns < candidate.until_ns) {
            candidate.until_ns = call->run->queue_deadline.batch_wait_until_ns;
        }
        if (!batch_can_share(head, call)) {
            n_skipped++;
            continue;
        }
        if (largest > 0 && rows > largest - candidate.rows) {
            *cut = cut->n_calls > 0 ? *cut : candidate;
            break;
        }
        if (rows > rules->max_rows - candidate.rows) {
            candidate.full = true; /* it is the first of the next batch */
            break;
        }
        candidate.rows += rows;
        candidate.n_calls++;
        if (is_preferred(rules, candidate.rows)) {
            *cut = candidate;
        }
    }
    candidate.full = candidate.full || candidate.rows >= rules->max_rows ||
                     candidate.n_calls == max || (largest > 0 && candidate.rows >= largest);
    return candidate;
}

struct batch_candidate batch_preview(const struct batch_rules *rules, const struct call *head,
                                     size_t max, uint64_t now_ns) {
    if (rules->max_rows == 0 || head->run->backend_request.batch >= rules->max_rows) {
        return (struct batch_candidate){.rows = head->run->backend_request.batch,
                                        .n_calls = 1,
                                        .full = true,
                                        .until_ns = now_ns};
    }
    struct batch_candidate cut, candidate = collect_batch(rules, head, max, now_ns, &cut);
    if (cut.n_calls > 0) {
        cut.full = true;
        return cut;
    }
    return candidate;
}

size_t batch_take(const struct batch_rules *rules, struct priority_queue *queue, struct call *head,
                  struct call **batch, size_t max, uint64_t now_ns) {
    size_t wanted = batch_preview(rules, head, max, now_ns).n_calls, n = 0;
    struct call *call = TAILQ_NEXT(head, run->queue_link);
    priority_queue_remove(queue, head);
    batch[n++] = head;
    while (n < wanted) { /* batch_preview counted them in this same queue */
        struct call *next = TAILQ_NEXT(call, run->queue_link);
        if (!queue_deadline_passed(&call->run->queue_deadline, now_ns) &&
            batch_can_share(head, call)) {
            priority_queue_remove(queue, call);
            batch[n++] = call;
        }
        call = next;
    }
    return n;
}
