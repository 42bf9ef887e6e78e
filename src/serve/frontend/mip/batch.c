/* The window of chunks. Each step does one thing, and the next step depends only on the state of
 * the batch. */
#include "serve/frontend/mip/batch.h"

#include <assert.h>
#include <inttypes.h>

#include "core/base/checked.h"
#include "core/base/compiler.h"
#include "core/base/metric/metric.h"
#include "core/event/clock.h"

enum {
    STEP_BUDGET_NS = 2 * 1000 * 1000, /* per event-loop iteration */
    MAX_DECODING = 16,                /* pictures being decoded */
};

static struct mip_chunk *chunk_at(struct mip_batch *batch, size_t i) {
    return batch->chunks[(batch->oldest + i) % MIP_BATCH_CHUNKS];
}

/* The batch is not idle, because a cancelled call may call back at once, which must not run another
 * step. */
static void fail_batch(struct mip_batch *batch, const struct error *err) {
    assert(batch->state != MIP_BATCH_IDLE && batch->state != MIP_BATCH_FINISHED);
    if (batch->error.status != ST_OK) {
        return;
    }
    batch->error = *err;
    for (size_t i = 0; i < batch->n_chunks; i++) {
        mip_chunk_cancel(chunk_at(batch, i));
    }
}

static void free_oldest_chunk(struct mip_batch *batch) {
    mip_chunk_free(chunk_at(batch, 0));
    batch->oldest = (batch->oldest + 1) % MIP_BATCH_CHUNKS;
    batch->n_chunks--;
    batch->short_of_memory = false;
}

/* ---- helper threads -------------------------------------------------------------------------- */

static void run_steps(struct mip_batch *batch);

static struct mip_batch_helper *helper_new(struct mip_batch *batch) {
    struct arena *arena = arena_new_beside(batch->arena);
    struct mip_batch_helper *helper = arena ? arena_alloc(arena, sizeof(*helper)) : NULL;
    if (!helper) {
        arena_free(arena);
        return NULL;
    }
    helper->batch = batch;
    helper->arena = arena;
    arena_set_cancelled(arena, &batch->context.cancelled);
    return helper;
}

/* Submits a job that is estimated to take `ns`. Returns: false when the worker shall do it. */
static bool start_job(struct mip_batch *batch, uint64_t ns, void (*run)(struct helper_job *job),
                      void (*done)(struct helper_job *job)) {
    struct helper_pool *pool = batch->context.services->helpers;
    if (ns < HELPER_MIN_NS || !pool) {
        return false;
    }
    if (!batch->helper) {
        batch->helper = helper_new(batch);
    }
    if (!batch->helper) {
        return false;
    }
    batch->helper->job =
        (struct helper_job){.worker = batch->context.worker,
                            .run = run,
                            .done = done,
                            .client = net_peer_client(memory_account_peer(batch->context.account)),
                            .ns = ns};
    batch->helper->error.status = ST_OK;
    batch->state = MIP_BATCH_ON_HELPER;
    helper_pool_submit(pool, &batch->helper->job);
    return true;
}

static struct mip_batch_helper *helper_of(struct helper_job *job) {
    return CONTAINER_OF(job, struct mip_batch_helper, job);
}

/* ---- steps: each returns whether it made progress -------------------------------------------- */

/* Chunks are submitted in order, even when a later one has its pictures earlier: the outputs of a
 * later one keep their memory until those before it are written, for which the earlier one would
 * wait. */
static bool step_submit(struct mip_batch *batch) {
    bool is_next = true;
    for (size_t i = 0; i < batch->n_chunks; i++) {
        struct mip_chunk *chunk = chunk_at(batch, i);
        if (chunk->error.status != ST_OK) {
            fail_batch(batch, &chunk->error);
            return true;
        }
        if (is_next && mip_chunk_is_ready(chunk)) {
            mip_chunk_submit(chunk);
            return true;
        }
        is_next = is_next && chunk->state >= MIP_CHUNK_RUNNING;
    }
    return false;
}

/* Is the chunk the whole batch? Then its outputs stay until the answer is sent, and can be views.
 */
static bool is_whole_batch(const struct mip_batch *batch, const struct mip_chunk *chunk) {
    return chunk->n == batch->context.infer->batch;
}

static bool is_written(const struct mip_chunk *chunk) {
    return chunk->state == MIP_CHUNK_ANSWERED && chunk->n_written == chunk->n;
}

static void end_write(struct mip_batch *batch, struct mip_chunk *chunk, enum status st,
                      const struct error *err) {
    if (st != ST_OK) {
        fail_batch(batch, err);
    } else if (is_written(chunk) && !batch->writer.views_outputs) {
        free_oldest_chunk(batch);
    }
}

/* The oldest chunk, and whether it is the whole batch, do not change meanwhile. */
static void run_write(struct helper_job *job) {
    struct mip_batch_helper *helper = helper_of(job);
    struct mip_batch *batch = helper->batch;
    struct mip_chunk *chunk = chunk_at(batch, 0);
    enum status st = mip_answer_begin_part(&helper->part, helper->arena, batch->context.plan,
                                           batch->context.services->non_finite, &helper->error);
    if (st == ST_OK) {
        st = mip_chunk_write(chunk, &helper->part, is_whole_batch(batch, chunk), helper->arena,
                             &helper->error);
    }
    assert(st == helper->error.status);
    (void)st;
}

static void on_written(struct helper_job *job) {
    struct mip_batch_helper *helper = helper_of(job);
    struct mip_batch *batch = helper->batch;
    enum status st = helper->error.status;
    batch->state = MIP_BATCH_STEPPING;
    if (batch->error.status == ST_OK) {
        st = st == ST_OK ? mip_answer_add_part(&batch->writer, &helper->part, &helper->error) : st;
        end_write(batch, chunk_at(batch, 0), st, &helper->error);
    }
    batch->state = MIP_BATCH_IDLE;
    run_steps(batch);
}

static bool step_write(struct mip_batch *batch) {
    struct mip_chunk *chunk = batch->n_chunks > 0 ? chunk_at(batch, 0) : NULL;
    struct error err;
    if (!chunk || chunk->state != MIP_CHUNK_ANSWERED || is_written(chunk)) {
        return false;
    }
    enum status st = mip_chunk_begin_write(chunk, &err);
    if (st == ST_OK && start_job(batch, mip_chunk_write_ns(chunk), run_write, on_written)) {
        return false;
    }
    if (st == ST_OK) {
        st = mip_chunk_write(chunk, &batch->writer, is_whole_batch(batch, chunk), chunk->arena,
                             &err);
    }
    end_write(batch, chunk, st, &err);
    return true;
}

/* The memory available for a new chunk. Returns: 0 when there is none. */
static size_t memory_left(struct mip_batch *batch) {
    size_t used = mip_batch_answer_bytes(batch);
    for (size_t i = 0; i < batch->n_chunks; i++) {
        used += arena_bytes(chunk_at(batch, i)->arena);
    }
    return used < batch->memory_bytes ? (size_t)(batch->memory_bytes - used) : 0;
}

/* Running chunks release memory when they end; without any, the batch fails. */
static bool handle_no_memory(struct mip_batch *batch, const struct error *err) {
    if (batch->n_chunks == 0) {
        fail_batch(batch, err);
        return true;
    }
    batch->short_of_memory = true;
    return false;
}

static bool step_begin(struct mip_batch *batch) {
    size_t left = batch->context.infer->batch - batch->n_taken;
    uint64_t max = batch->context.plan->max_batch;
    struct error err;
    if (left == 0 || batch->n_chunks == MIP_BATCH_CHUNKS || batch->short_of_memory) {
        return false;
    }
    size_t memory = memory_left(batch);
    struct mip_chunk *chunk = memory > 0 ? mip_chunk_new(&batch->context, batch->n_taken,
                                                         left < max ? left : (size_t)max, memory)
                                         : NULL;
    if (!chunk) {
        error_no_memory(&err, "a part of the batch");
        return handle_no_memory(batch, &err);
    }
    batch->chunks[(batch->oldest + batch->n_chunks) % MIP_BATCH_CHUNKS] = chunk;
    batch->n_chunks++;
    return true;
}

static struct mip_chunk *newest_chunk(struct mip_batch *batch) {
    return batch->n_chunks > 0 ? chunk_at(batch, batch->n_chunks - 1) : NULL;
}

/* The element was read, or not: `st` and `err`. Returns: whether that is progress. */
static bool end_read(struct mip_batch *batch, struct mip_chunk *chunk, enum status st,
                     struct error *err) {
    bool taken = false;
    if (st == ST_OK) {
        st = mip_chunk_add_element(chunk, &taken, err);
    }
    if (st == ST_NO_MEMORY && chunk->n > 0) { /* it runs with fewer elements */
        mip_chunk_close(chunk);
        return true;
    }
    if (st == ST_NO_MEMORY) {
        mip_chunk_free(chunk);
        batch->n_chunks--;
        return handle_no_memory(batch, err);
    }
    if (st != ST_OK) {
        fail_batch(batch, err);
        return true;
    }
    batch->n_taken += taken;
    if (!taken || chunk->n == chunk->capacity) {
        mip_chunk_close(chunk);
    }
    return true;
}

/* The newest chunk is filling as long as no other step runs. */
static void run_read(struct helper_job *job) {
    struct mip_batch_helper *helper = helper_of(job);
    enum status st = mip_chunk_read_element(newest_chunk(helper->batch), &helper->error);
    assert(st == helper->error.status);
    (void)st;
}

static void on_read(struct helper_job *job) {
    struct mip_batch_helper *helper = helper_of(job);
    struct mip_batch *batch = helper->batch;
    batch->state = MIP_BATCH_STEPPING;
    if (batch->error.status == ST_OK) {
        end_read(batch, newest_chunk(batch), helper->error.status, &helper->error);
    }
    batch->state = MIP_BATCH_IDLE;
    run_steps(batch);
}

static bool step_gather(struct mip_batch *batch) {
    struct mip_chunk *chunk = newest_chunk(batch);
    struct error err;
    if (!chunk || chunk->state != MIP_CHUNK_FILLING) {
        return step_begin(batch);
    }
    size_t n_decoding = 0;
    for (size_t i = 0; i < batch->n_chunks; i++) {
        n_decoding += chunk_at(batch, i)->n_decoding;
    }
    if (n_decoding >= MAX_DECODING) {
        return false;
    }
    if (batch->context.is_large && start_job(batch, mip_chunk_read_ns(chunk), run_read, on_read)) {
        return false;
    }
    return end_read(batch, chunk, mip_chunk_read_element(chunk, &err), &err);
}

static bool run_step(struct mip_batch *batch) {
    if (batch->error.status != ST_OK) { /* the chunks are freed in order, each when it is idle */
        bool idle = batch->n_chunks > 0 && mip_chunk_is_idle(chunk_at(batch, 0));
        if (idle) {
            free_oldest_chunk(batch);
        }
        return idle;
    }
    return step_submit(batch) || step_write(batch) || step_gather(batch);
}

/* ---- event-loop iterations ------------------------------------------------------------------- */

static bool is_finished(struct mip_batch *batch) {
    if (batch->n_chunks == 0) {
        return batch->error.status != ST_OK || batch->n_taken == batch->context.infer->batch;
    }
    return batch->error.status == ST_OK && is_whole_batch(batch, chunk_at(batch, 0)) &&
           is_written(chunk_at(batch, 0));
}

static void on_resume(struct worker_msg *msg) {
    struct mip_batch *batch = CONTAINER_OF(msg, struct mip_batch, msg);
    batch->state = MIP_BATCH_IDLE;
    run_steps(batch);
}

static void run_steps(struct mip_batch *batch) {
    if (batch->state != MIP_BATCH_IDLE) {
        return;
    }
    uint64_t until_ns = clock_now_ns() + STEP_BUDGET_NS;
    batch->state = MIP_BATCH_STEPPING;
    while (batch->state == MIP_BATCH_STEPPING && run_step(batch)) {
        if (batch->state == MIP_BATCH_STEPPING && clock_now_ns() >= until_ns) {
            batch->state = MIP_BATCH_POSTED;
            worker_post(batch->context.worker, &batch->msg);
        }
    }
    if (batch->state != MIP_BATCH_STEPPING) {
        return;
    }
    batch->state = MIP_BATCH_IDLE;
    if (is_finished(batch)) {
        batch->state = MIP_BATCH_FINISHED;
        if (batch->error.status == ST_OK) {
            batch->error.status = mip_answer_end(&batch->writer, batch->context.infer,
                                                 &batch->pieces, &batch->n_pieces, &batch->error);
        }
        batch->done(batch);
    }
}

static void on_chunk_progress(struct mip_chunk *chunk) {
    run_steps(CONTAINER_OF(chunk->context, struct mip_batch, context));
}

/* ---- start and end --------------------------------------------------------------------------- */

/* Checks the least memory that an element needs, the tensors of the first one, before anything is
 * allocated. */
static enum status check_element_fits(const struct mip_batch *batch, struct error *err) {
    const struct mip_infer *infer = batch->context.infer;
    size_t sum = 0;
    bool counts = true;
    for (size_t i = 0; i < infer->n_inputs && counts; i++) {
        const struct mip_input *input = &batch->context.plan->inputs[i];
        bool decoded = infer->items[i].type == MIP_IMAGE && input->pictures == MIP_PICTURES_DECODED;
        uint64_t n_bytes = decoded ? input->picture_bytes : input->n_bytes;
        counts = n_bytes <= SIZE_MAX && checked_add(sum, (size_t)n_bytes, &sum);
    }
    if (counts && sum <= batch->memory_bytes) {
        return ST_OK;
    }
    return error_set(err, ST_NO_MEMORY,
                     "the tensors of one batch element are %zu bytes or more, over the limit of "
                     "%" PRIu64,
                     sum, batch->memory_bytes);
}

void mip_batch_start(struct mip_batch *batch) {
    struct error err;
    batch->context.progressed = on_chunk_progress;
    batch->msg.run = on_resume;
    batch->state = MIP_BATCH_STEPPING;
    if (check_element_fits(batch, &err) != ST_OK ||
        mip_answer_begin(&batch->writer, batch->arena, batch->context.plan,
                         batch->context.services->non_finite, &err) != ST_OK) {
        fail_batch(batch, &err);
    }
    batch->state = MIP_BATCH_IDLE;
    run_steps(batch);
}

void mip_batch_cancel(struct mip_batch *batch) {
    struct error err;
    enum mip_batch_state before = batch->state;
    if (before == MIP_BATCH_FINISHED) {
        return;
    }
    assert(before != MIP_BATCH_STEPPING);
    error_set(&err, ST_CANCELLED, "the client closed the connection before the response");
    atomic_store_explicit(&batch->context.cancelled, true, memory_order_relaxed);
    if (before == MIP_BATCH_ON_HELPER) {
        helper_pool_cancel(batch->context.services->helpers, &batch->helper->job);
    }
    batch->state = before == MIP_BATCH_IDLE ? MIP_BATCH_STEPPING : before;
    fail_batch(batch, &err);
    batch->state = before;
    run_steps(batch);
}

void mip_batch_fini(struct mip_batch *batch) {
    assert(batch->state == MIP_BATCH_FINISHED);
    while (batch->n_chunks > 0) {
        free_oldest_chunk(batch);
    }
    if (batch->helper) {
        arena_free(batch->helper->arena); /* the helper, too */
        batch->helper = NULL;
    }
}
