/* Sequences: batch composition, rows, closing, and the backlog. The clock is driven, so idle
 * timeouts pass only when a test advances it. */
#include "serve/scheduler/sequence/sequence.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/metric/metric.h"
#include "serve/repository/test_rig.h"
#include "serve/scheduler/call_run.h"

enum { BEGIN_NS = 1000000000, MS = 1000000, IDLE_MS = 5, FIRST = 1, LAST = 2, MOST_PARAMS = 4 };

#define SEQUENCES(kind, rows)                                                                      \
    .has_max_batch_size = true, .max_batch_size = (rows), .sequences.strategy = SEQUENCES_##kind,  \
    .sequences.idle_us = IDLE_MS * 1000

static const struct model_config direct = {SEQUENCES(DIRECT, 4)};
static const struct model_config direct_alone = {SEQUENCES(DIRECT, 1)};
static const struct model_config oldest = {SEQUENCES(OLDEST, 4), .sequences.max_candidates = 8};

/* ---- requests -------------------------------------------------------------------------------- */

static struct param params[RIG_CALLS][MOST_PARAMS];

static struct rig_call *make(struct rig *rig, size_t i, int64_t sequence, int flags) {
    struct rig_call *call = rig_make(rig, i, 1, (float)i);
    struct param *own = params[i];
    own[0] = (struct param){.name = STR("sequence_id"), .kind = PARAM_INT64, .int64 = sequence};
    own[1] = (struct param){
        .name = STR("sequence_start"), .kind = PARAM_BOOL, .boolean = (flags & FIRST) != 0};
    own[2] = (struct param){
        .name = STR("sequence_end"), .kind = PARAM_BOOL, .boolean = (flags & LAST) != 0};
    call->request.params = (struct params){own, 3};
    return call;
}

static void put(struct rig *rig, size_t i, int64_t sequence, int flags) {
    rig_submit(make(rig, i, sequence, flags));
}

static void put_for(struct rig *rig, size_t i, int64_t sequence, int flags, int64_t timeout_us) {
    struct rig_call *call = make(rig, i, sequence, flags);
    params[i][3] = (struct param){.name = STR("timeout"), .kind = PARAM_INT64, .int64 = timeout_us};
    call->request.params.n = 4;
    rig_submit(call);
}

static void move_clock(uint64_t ms) {
    clock_set_fake_ns(clock_now_ns() + ms * MS);
}

static void start(struct rig *rig, const struct model_config *config, uint64_t max_queue) {
    clock_set_fake_ns(BEGIN_NS);
    rig_open(rig, config, max_queue);
}

static void end(struct rig *rig) {
    rig_close(rig);
    clock_set_fake_ns(0);
    assert_int_equal(metric_read(METRIC_OUTPUTS_HELD), 0);
    assert_int_equal(metric_read(METRIC_SEQUENCES), 0);
}

static void close_gate(struct rig *rig) {
    atomic_store(&rig->model->gate_closed, true);
}

static void open_gate(struct rig *rig) {
    atomic_store(&rig->model->gate_closed, false);
}

static size_t n_open(struct rig *rig) {
    struct scheduler *scheduler = &rig->version->scheduler;
    lock_acquire(&scheduler->lock);
    size_t n = scheduler->sequences->n_open;
    lock_release(&scheduler->lock);
    return n;
}

/* Waits until the instance has finished its last execution. */
static void await_rest(struct rig *rig) {
    struct scheduler *scheduler = &rig->version->scheduler;
    bool rests = false;
    while (!rests) {
        rig_pause();
        lock_acquire(&scheduler->lock);
        rests = !TAILQ_EMPTY(&scheduler->sequences->idle);
        lock_release(&scheduler->lock);
    }
}

static void assert_sizes(struct rig *rig, const int *sizes, int n) {
    assert_int_equal(atomic_load(&rig->model->n_executions), n);
    for (int i = 0; i < n; i++) {
        assert_int_equal(atomic_load(&rig->model->sizes[i]), sizes[i]);
    }
}

static void assert_statuses(struct rig *rig, const enum status *statuses, int n) {
    for (int i = 0; i < n; i++) {
        if (rig->calls[i].error.status != statuses[i]) {
            fail_msg("call %d: %s", i, rig->calls[i].error.text);
        }
    }
}

/* ---- batch composition ----------------------------------------------------------------------- */

static void send_two_sequences(struct rig *rig) {
    close_gate(rig);
    put(rig, 0, 1, FIRST);
    rig_await_started(rig, 1);
    put(rig, 1, 1, 0);
    put(rig, 2, 1, LAST);
    put(rig, 3, 2, FIRST);
    put(rig, 4, 2, LAST);
    open_gate(rig);
}

static void sequence_requests_run_one_at_a_time(void **state) {
    static struct rig rig;
    (void)state;
    static const int sizes[] = {1, 2, 2};
    start(&rig, &direct, 0);
    rig_run(&rig, send_two_sequences, 5);
    assert_sizes(&rig, sizes, 3);
    assert_int_equal(n_open(&rig), 0);
    end(&rig);
    start(&rig, &oldest, 0);
    rig_run(&rig, send_two_sequences, 5);
    assert_sizes(&rig, sizes, 3);
    end(&rig);
}

static void send_three_starts(struct rig *rig) {
    close_gate(rig);
    put(rig, 0, 1, FIRST);
    rig_await_started(rig, 1);
    put(rig, 1, 2, FIRST);
    put(rig, 2, 3, FIRST);
    open_gate(rig);
}

static void send_third(struct rig *rig) {
    put(rig, 3, 3, LAST);
}

/* The second execution has no request of sequence 1, the third none of 1 and 2. */
static void sequence_direct_empty_slot_gets_padding_request(void **state) {
    static struct rig rig;
    (void)state;
    static const int sizes[] = {1, 3, 3};
    struct model_statistics statistics;
    start(&rig, &direct, 0);
    rig_run(&rig, send_three_starts, 3);
    rig_run(&rig, send_third, 1);
    assert_sizes(&rig, sizes, 3);
    assert_int_equal(atomic_load(&rig.model->n_started), 7);
    /* answers to padding requests included */
    assert_int_equal(atomic_load(&rig.model->n_released), 7);
    assert_int_equal((int)rig.calls[3].y[0], 3);
    model_version_statistics(rig.version, &statistics);
    assert_int_equal(statistics.n_inferences, 4);
    end(&rig);
}

static void keep_the_first(struct sluice_model *model, const sluice_request *request) {
    const float *x = request->inputs[0].pieces[0].data;
    (x[0] < 1 ? rig_keep : rig_echo)(model, request);
}

static void answer_the_kept(struct rig *rig) {
    assert_int_equal(atomic_load(&rig->model->n_started), 2);
    rig_echo(rig->model, rig->model->kept);
}

static void done_then_answer_the_kept(struct call *done) {
    struct rig *rig = ((struct rig_call *)(void *)done)->rig;
    rig_done(done);
    rig_then(rig, answer_the_kept);
}

static void send_behind_one_that_is_kept(struct rig *rig) {
    rig->model->handle_request = keep_the_first;
    put(rig, 0, 1, FIRST);
    rig_await_started(rig, 1);
    put(rig, 1, 1, LAST);
    make(rig, 2, 2, FIRST | LAST)->call.done = done_then_answer_the_kept;
    rig_submit(&rig->calls[2]);
}

/* The backend answers later: other sequences continue, this one waits. */
static void sequence_oldest_next_request_waits_for_response(void **state) {
    static struct rig rig;
    (void)state;
    static const int order[] = {0, 2, 1};
    start(&rig, &oldest, 0);
    rig_run(&rig, send_behind_one_that_is_kept, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(atomic_load(&rig.model->order[i]), order[i]);
        assert_int_equal(rig.calls[i].error.status, ST_OK);
    }
    end(&rig);
}

static void answer_the_kept_last(struct sluice_model *model, const sluice_request *request) {
    keep_the_first(model, request);
    if (atomic_load(&model->n_started) == 4) {
        rig_echo(model, model->kept);
    }
}

static void send_beside_one_that_is_kept(struct rig *rig) {
    rig->model->handle_request = answer_the_kept_last;
    put(rig, 0, 1, FIRST);
    put(rig, 1, 2, FIRST);
    put(rig, 2, 2, 0);
    put(rig, 3, 2, LAST);
    put(rig, 4, 1, LAST);
}

/* A sequence continues while its answers wait for earlier ones. */
static void sequence_oldest_preserve_ordering_keeps_order(void **state) {
    static struct rig rig;
    (void)state;
    struct model_config config = oldest;
    config.preserve_ordering = true;
    start(&rig, &config, 0);
    rig_run(&rig, send_beside_one_that_is_kept, 5);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(atomic_load(&rig.model->order[i]), i);
        assert_int_equal(rig.calls[i].done_index, i);
    }
    end(&rig);
}

static void send_five_sequences(struct rig *rig) {
    close_gate(rig);
    put(rig, 0, 1, FIRST | LAST);
    rig_await_started(rig, 1);
    for (size_t i = 1; i < 6; i++) {
        put(rig, i, (int64_t)i + 1, FIRST | LAST);
    }
    open_gate(rig);
}

static void sequence_oldest_preferred_size_takes_oldest_first(void **state) {
    static struct rig rig;
    (void)state;
    static const uint64_t three[] = {3};
    static const int sizes[] = {1, 3, 2};
    struct model_config config = oldest;
    config.preferred_batch_sizes = three;
    config.n_preferred = 1;
    start(&rig, &config, 0);
    rig_run(&rig, send_five_sequences, 6);
    assert_sizes(&rig, sizes, 3);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(atomic_load(&rig.model->order[i]), i);
    }
    end(&rig);
}

static void send_two_of_four(struct rig *rig) {
    put(rig, 0, 1, FIRST);
    put(rig, 1, 2, FIRST);
}

static void send_two_more(struct rig *rig) {
    assert_int_equal(atomic_load(&rig->model->n_executions), 0);
    put(rig, 2, 3, FIRST);
    put(rig, 3, 4, FIRST);
}

static void wait_then_two_more(struct rig *rig) {
    send_two_of_four(rig);
    rig_then(rig, send_two_more);
}

static void sequence_direct_min_utilization_waits_for_rows(void **state) {
    static struct rig rig;
    (void)state;
    static const int sizes[] = {4};
    struct model_config config = direct;
    config.sequences.min_utilization = 1;
    config.max_queue_delay_us = 1000;
    start(&rig, &config, 0);
    rig_run(&rig, wait_then_two_more, 4);
    assert_sizes(&rig, sizes, 1);
    end(&rig);
}

static void send_two_and_wait(struct rig *rig) {
    send_two_of_four(rig);
    move_clock(1);
}

static void sequence_direct_queue_delay_ends_wait(void **state) {
    static struct rig rig;
    (void)state;
    static const int sizes[] = {2};
    struct model_config config = direct;
    config.sequences.min_utilization = 0.75;
    config.max_queue_delay_us = 1000;
    start(&rig, &config, 0);
    rig_run(&rig, send_two_and_wait, 2);
    assert_sizes(&rig, sizes, 1);
    end(&rig);
}

/* ---- closing --------------------------------------------------------------------------------- */

static void begin_first(struct rig *rig) {
    put(rig, 0, 1, FIRST);
}

static void go_on_after_almost_too_long(struct rig *rig) {
    await_rest(rig);
    clock_set_fake_ns(clock_now_ns() + IDLE_MS * MS - 1);
    put(rig, 1, 1, 0);
}

static void go_on_after_too_long(struct rig *rig) {
    await_rest(rig);
    move_clock(IDLE_MS);
    put(rig, 2, 1, 0);
}

static void sequence_idle_timeout_closes_sequence(void **state) {
    static struct rig rig;
    (void)state;
    static const enum status statuses[] = {ST_OK, ST_OK, ST_BAD_SEQUENCE};
    start(&rig, &direct, 0);
    rig_run(&rig, begin_first, 1);
    rig_run(&rig, go_on_after_almost_too_long, 1);
    assert_int_equal(n_open(&rig), 1);
    rig_run(&rig, go_on_after_too_long, 1);
    assert_statuses(&rig, statuses, 3);
    assert_non_null(
        strstr(rig.calls[2].error.text, "for sequence 1 to model 'm' must specify the START"));
    assert_non_null(strstr(rig.calls[2].error.text, "max_sequence_idle_microseconds (5000"));
    assert_int_equal(n_open(&rig), 0);
    end(&rig);
}

static void execute_for_long(struct rig *rig) {
    put(rig, 0, 1, FIRST);
    rig_await_started(rig, 1);
    move_clock(3 * IDLE_MS);
    put(rig, 1, 1, 0); /* while the first runs */
    move_clock(3 * IDLE_MS);
    open_gate(rig);
}

static void sequence_running_or_waiting_is_not_idle(void **state) {
    static struct rig rig;
    (void)state;
    static const enum status statuses[] = {ST_OK, ST_OK};
    start(&rig, &direct_alone, 0);
    close_gate(&rig);
    rig_run(&rig, execute_for_long, 2);
    assert_statuses(&rig, statuses, 2);
    end(&rig);
}

static void begin_another(struct rig *rig) {
    await_rest(rig);
    put(rig, 1, 2, FIRST);
    put(rig, 2, 2, LAST);
    move_clock(IDLE_MS); /* the first sequence's idle timeout frees its slot for the second */
}

static void sequence_freed_slot_goes_to_backlog(void **state) {
    static struct rig rig;
    (void)state;
    static const enum status statuses[] = {ST_OK, ST_OK, ST_OK};
    start(&rig, &direct_alone, 0);
    rig_run(&rig, begin_first, 1);
    rig_run(&rig, begin_another, 2);
    assert_statuses(&rig, statuses, 3);
    assert_int_equal(n_open(&rig), 0);
    end(&rig);
}

static void begin_again(struct rig *rig) {
    close_gate(rig);
    put(rig, 0, 1, FIRST);
    rig_await_started(rig, 1);
    put(rig, 1, 1, 0);
    put(rig, 2, 1, FIRST); /* the same slot, after the waiting call */
    put(rig, 3, 1, LAST);
    put(rig, 4, 1, 0);
    put(rig, 5, 1, FIRST | LAST); /* another sequence: the slot is not free yet */
    open_gate(rig);
}

static void sequence_second_start_restarts_sequence(void **state) {
    static struct rig rig;
    (void)state;
    static const enum status statuses[] = {ST_OK, ST_OK, ST_OK, ST_OK, ST_BAD_SEQUENCE, ST_OK};
    static const int order[] = {0, 1, 2, 3, 5};
    start(&rig, &direct_alone, 0);
    rig_run(&rig, begin_again, 6);
    assert_statuses(&rig, statuses, 6);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(atomic_load(&rig.model->order[i]), order[i]);
    }
    end(&rig);
}

/* ---- dropped requests ------------------------------------------------------------------------ */

/* Opens the gate when all but one are done. */
static void done_then_open(struct call *done) {
    struct rig *rig = ((struct rig_call *)(void *)done)->rig;
    rig_done(done);
    if (rig->n_done == rig->expected - 2) {
        open_gate(rig);
    }
}

static void send_with_one_that_is_late(struct rig *rig) {
    close_gate(rig);
    put(rig, 0, 1, FIRST);
    rig_await_started(rig, 1);
    put(rig, 1, 1, 0);
    put_for(rig, 2, 1, 0, 1000);
    put(rig, 3, 1, 0);
    put(rig, 4, 1, LAST);
    for (size_t i = 2; i < 5; i++) {
        rig->calls[i].call.done = done_then_open;
    }
    move_clock(1);
}

static void sequence_expired_request_drops_followers(void **state) {
    static struct rig rig;
    (void)state;
    static const enum status statuses[] = {ST_OK, ST_OK, ST_QUEUE_TIMEOUT, ST_QUEUE_TIMEOUT,
                                           ST_QUEUE_TIMEOUT};
    int64_t before = metric_read(METRIC_DROPPED_QUEUE_TIMEOUT);
    start(&rig, &direct_alone, 0);
    rig_run(&rig, send_with_one_that_is_late, 5);
    assert_statuses(&rig, statuses, 5);
    assert_non_null(strstr(rig.calls[3].error.text, "an earlier request of its sequence"));
    assert_int_equal(metric_read(METRIC_DROPPED_QUEUE_TIMEOUT), before + 3);
    assert_int_equal(atomic_load(&rig.model->n_started), 2);
    assert_int_equal(n_open(&rig), 0);
    end(&rig);
}

/* Waits until the instance's thread waits for a call that may run. */
static void await_waiting(struct rig *rig) {
    struct scheduler *scheduler = &rig->version->scheduler;
    bool waits = false;
    while (!waits) {
        rig_pause();
        lock_acquire(&scheduler->lock);
        waits = !atomic_load(&rig->version->instances[0].busy);
        lock_release(&scheduler->lock);
    }
}

/* The instance is idle before the worker's timer removes the expired call. */
static void send_a_start_behind_one_that_is_late(struct rig *rig) {
    close_gate(rig);
    put(rig, 0, 1, FIRST);
    rig_await_started(rig, 1);
    put_for(rig, 1, 1, 0, 1000);
    put(rig, 2, 1, FIRST);
    move_clock(1);
    open_gate(rig);
    await_waiting(rig);
}

static void sequence_expired_request_does_not_block_next_start(void **state) {
    static struct rig rig;
    (void)state;
    static const enum status statuses[] = {ST_OK, ST_QUEUE_TIMEOUT, ST_OK};
    static const struct model_config *const configs[] = {&direct_alone, &oldest};
    for (size_t i = 0; i < 2; i++) {
        start(&rig, configs[i], 0);
        rig_run(&rig, send_a_start_behind_one_that_is_late, 3);
        assert_statuses(&rig, statuses, 3);
        assert_int_equal(n_open(&rig), 1);
        end(&rig);
    }
}

static void cancel_before_a_start(struct rig *rig) {
    close_gate(rig);
    put(rig, 0, 1, FIRST);
    rig_await_started(rig, 1);
    put(rig, 1, 1, 0);
    put(rig, 2, 1, 0);
    put(rig, 3, 1, FIRST);
    call_cancel(&rig->calls[1].call);
    assert_int_equal(rig->calls[1].n_done, 1);
    open_gate(rig);
}

static void sequence_cancel_drops_followers_until_next_start(void **state) {
    static struct rig rig;
    (void)state;
    static const enum status statuses[] = {ST_OK, ST_CANCELLED, ST_CANCELLED, ST_OK};
    start(&rig, &oldest, 0);
    rig_run(&rig, cancel_before_a_start, 4);
    assert_statuses(&rig, statuses, 4);
    assert_int_equal(n_open(&rig), 1);
    end(&rig);
}

static void cancel_one_that_waits_for_a_place(struct rig *rig) {
    put(rig, 1, 2, FIRST);
    put(rig, 2, 2, 0);
    assert_int_equal(n_open(rig), 2);
    call_cancel(&rig->calls[1].call);
    assert_int_equal(n_open(rig), 1);
}

static void go_on_in_vain(struct rig *rig) {
    put(rig, 3, 2, LAST);
    put(rig, 4, 1, LAST);
}

static void sequence_cancelled_start_leaves_no_sequence(void **state) {
    static struct rig rig;
    (void)state;
    static const enum status statuses[] = {ST_OK, ST_CANCELLED, ST_CANCELLED, ST_BAD_SEQUENCE,
                                           ST_OK};
    start(&rig, &direct_alone, 0);
    rig_run(&rig, begin_first, 1);
    rig_run(&rig, cancel_one_that_waits_for_a_place, 2);
    rig_run(&rig, go_on_in_vain, 2);
    assert_statuses(&rig, statuses, 5);
    end(&rig);
}

/* ---- limits ---------------------------------------------------------------------------------- */

enum { MOST_WAITING = 10, CROWD = RIG_CALLS - 1 };

static void send_a_crowd(struct rig *rig) {
    close_gate(rig);
    put(rig, 0, 1000, FIRST | LAST);
    rig_await_started(rig, 1);
    for (size_t i = 1; i <= CROWD; i++) {
        put(rig, i, (int64_t)i, FIRST);
    }
    assert_int_equal(n_open(rig), MOST_WAITING);
    assert_int_equal(rig->version->scheduler.sequences->n_all, MOST_WAITING + 1);
    for (size_t i = 1; i <= MOST_WAITING; i++) {
        call_cancel(&rig->calls[i].call);
    }
    assert_int_equal(n_open(rig), 0);
    open_gate(rig);
}

/* The number of sequences is bounded by slots plus queue size, however many are started. */
static void sequence_backlog_is_limited_by_queue_size(void **state) {
    static struct rig rig;
    (void)state;
    start(&rig, &direct_alone, MOST_WAITING);
    rig_run(&rig, send_a_crowd, CROWD + 1);
    for (size_t i = 1; i <= CROWD; i++) {
        assert_int_equal(rig.calls[i].error.status,
                         i <= MOST_WAITING ? ST_CANCELLED : ST_QUEUE_FULL);
    }
    end(&rig);
}

static void fill_the_backlog(struct rig *rig) {
    for (size_t i = 1; i <= 3; i++) {
        put(rig, i, (int64_t)i + 1, FIRST | LAST);
    }
}

static void go_on_to_the_end(struct rig *rig) {
    put(rig, 4, 1, LAST);
}

static void fill_then_go_on(struct rig *rig) {
    fill_the_backlog(rig);
    rig_then(rig, go_on_to_the_end);
}

/* A full backlog must not block sequences that own a slot. */
static void sequence_with_slot_is_not_blocked_by_backlog(void **state) {
    static struct rig rig;
    (void)state;
    static const enum status statuses[] = {ST_OK, ST_OK, ST_OK, ST_QUEUE_FULL, ST_OK};
    start(&rig, &direct_alone, 2);
    rig_run(&rig, begin_first, 1);
    rig_run(&rig, fill_then_go_on, 4);
    assert_statuses(&rig, statuses, 5);
    end(&rig);
}

/* ---- configuration --------------------------------------------------------------------------- */

static void sequence_run_on_worker_is_refused(void **state) {
    static struct rig rig;
    (void)state;
    struct model_config config = direct;
    struct error err;
    config.run_on = RUN_ON_WORKER;
    assert_int_equal(rig_open_with(&rig, &rig_backend, &config, 0, &err), ST_BAD_CONFIG);
    assert_non_null(strstr(err.text, "sluice.run_on"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequence_requests_run_one_at_a_time),
        cmocka_unit_test(sequence_direct_empty_slot_gets_padding_request),
        cmocka_unit_test(sequence_oldest_next_request_waits_for_response),
        cmocka_unit_test(sequence_oldest_preserve_ordering_keeps_order),
        cmocka_unit_test(sequence_oldest_preferred_size_takes_oldest_first),
        cmocka_unit_test(sequence_direct_min_utilization_waits_for_rows),
        cmocka_unit_test(sequence_direct_queue_delay_ends_wait),
        cmocka_unit_test(sequence_idle_timeout_closes_sequence),
        cmocka_unit_test(sequence_running_or_waiting_is_not_idle),
        cmocka_unit_test(sequence_freed_slot_goes_to_backlog),
        cmocka_unit_test(sequence_second_start_restarts_sequence),
        cmocka_unit_test(sequence_expired_request_drops_followers),
        cmocka_unit_test(sequence_expired_request_does_not_block_next_start),
        cmocka_unit_test(sequence_cancel_drops_followers_until_next_start),
        cmocka_unit_test(sequence_cancelled_start_leaves_no_sequence),
        cmocka_unit_test(sequence_backlog_is_limited_by_queue_size),
        cmocka_unit_test(sequence_with_slot_is_not_blocked_by_backlog),
        cmocka_unit_test(sequence_run_on_worker_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
