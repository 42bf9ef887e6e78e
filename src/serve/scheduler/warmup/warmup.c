/* One call after the other, through the same door as those of clients but for the queue: each is
 * checked and prepared, executed, answered now or later, and comes back to a worker, which is the
 * thread that loads. */
#include "serve/scheduler/warmup/warmup.h"

#include <assert.h>
#include <stddef.h>

#include "core/base/log.h"
#include "core/event/clock.h"
#include "serve/scheduler/call_state.h"
#include "serve/scheduler/warmup/sample.h"

static const size_t SAMPLE_BYTES = (size_t)1 << 30; /* more is a mistake in its dims */

struct warmup {
    struct model_version *version;
    struct worker *worker;
    struct worker_msg next; /* runs the call that is due */
    /* which that is */
    size_t sample;
    uint64_t repetition;
    size_t instance;
    /* the sample itself */
    struct arena *arena;
    struct infer_input *inputs;
    /* the call */
    struct call call;
    struct infer_request request;
    struct error *err;
};

static const struct model_warmup *sample_of(const struct warmup *warmup) {
    return &warmup->version->config.warmups[warmup->sample];
}

/* ---- one call -------------------------------------------------------------------------------- */

/* Goes on to the next one. */
static void advance_to_next(struct warmup *warmup) {
    warmup->instance++;
    if (warmup->instance == warmup->version->n_instances) {
        warmup->instance = 0;
        warmup->repetition++;
    }
    if (warmup->repetition == sample_of(warmup)->count) {
        warmup->repetition = 0;
        warmup->sample++;
        arena_free(warmup->arena);
        warmup->arena = NULL;
    }
}

static void on_done(struct call *call) {
    struct warmup *warmup = (struct warmup *)(void *)((char *)call - offsetof(struct warmup, call));
    *warmup->err = call->response.error;
    infer_response_release(&call->response);
    arena_free(warmup->request.arena);
    if (warmup->err->status == ST_OK) {
        advance_to_next(warmup);
    } else {
        error_prefix(warmup->err, "on instance %zu", warmup->instance);
    }
    worker_post(warmup->worker, &warmup->next);
}

static enum status make_sample(struct warmup *warmup) {
    struct warmup_target target = {
        .directory = warmup->version->directory,
        .max_batch_size = warmup->version->config.max_batch_size,
    };
    warmup->arena = arena_new(NULL, SAMPLE_BYTES);
    if (!warmup->arena) {
        return error_set(warmup->err, ST_NO_MEMORY, "out of memory for the sample");
    }
    return warmup_sample_make(warmup->arena, sample_of(warmup), &target, &warmup->inputs,
                              warmup->err);
}

static enum status begin_call(struct warmup *warmup) {
    struct call *call = &warmup->call;
    warmup->request = (struct infer_request){
        .arena = arena_new(worker_arenas(warmup->worker), 0),
        .inputs = warmup->inputs,
        .n_inputs = sample_of(warmup)->n_inputs,
    };
    if (!warmup->request.arena) {
        return error_set(warmup->err, ST_NO_MEMORY, "out of memory for the sample");
    }
    enum status st = infer_check(&warmup->request, &warmup->version->plan.spec, warmup->err);
    if (st == ST_OK) {
        st = infer_align_copy(&warmup->request, warmup->err);
    }
    call->request = &warmup->request;
    call->worker = warmup->worker;
    call->done = on_done;
    call_init(call, warmup->version);
    if (st == ST_OK) {
        st = call_prepare(call, warmup->err);
    }
    if (st != ST_OK) {
        arena_free(warmup->request.arena);
    }
    return st;
}

/* Not through instance_execute, which counts. */
static void execute_call(struct warmup *warmup) {
    struct model_version *version = warmup->version;
    const sluice_request *request = &warmup->call.abi;
    struct error err;
    bool entered = version_enter(version, &err);
    assert(entered); /* nobody knows the version yet who could stop it */
    (void)entered;
    model_version_ref(version);
    call_set_state(&warmup->call, CALL_RUNNING);
    version->backend->execute(version->instances[warmup->instance].handle, &request, 1);
}

static void run_next(struct worker_msg *msg) {
    struct warmup *warmup = (struct warmup *)(void *)((char *)msg - offsetof(struct warmup, next));
    bool over = warmup->sample == warmup->version->config.n_warmups;
    if (over || warmup->err->status != ST_OK || (!warmup->arena && make_sample(warmup) != ST_OK) ||
        begin_call(warmup) != ST_OK) {
        worker_stop(warmup->worker);
        return;
    }
    execute_call(warmup);
}

/* ---- all of them ----------------------------------------------------------------------------- */

enum status warmup_run(struct model_version *version, struct error *err) {
    struct warmup warmup = {.version = version, .next.run = run_next, .err = err};
    uint64_t began_ns = clock_now_ns();
    if (version->config.n_warmups == 0) {
        return ST_OK;
    }
    err->status = ST_OK;
    enum status st = worker_new("warm-up", &warmup.worker, err);
    if (st != ST_OK) {
        return st;
    }
    worker_post(warmup.worker, &warmup.next);
    worker_run(warmup.worker);
    if (err->status != ST_OK) {
        char name[TENSOR_NAME_TEXT_BYTES];
        tensor_name_print(sample_of(&warmup)->name, name);
        st = error_prefix(err, "model_warmup %s", name);
    }
    arena_free(warmup.arena);
    worker_free(warmup.worker);
    if (st == ST_OK) {
        log_event(LOG_INFO, "model warmed up", LOG_STR("model", version->plan.spec.name),
                  LOG_U64("samples", warmup.sample), LOG_U64("instances", version->n_instances),
                  LOG_F64("seconds", (double)(clock_now_ns() - began_ns) / 1e9));
    }
    return st;
}
