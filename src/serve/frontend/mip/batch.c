/* The window of parts: each step does one thing, and what is done next depends on nothing but what
 * there is. */
#include "serve/frontend/mip/batch.h"

#include <assert.h>
#include <inttypes.h>

#include "core/base/checked.h"
#include "core/event/clock.h"

enum {
    TURN_NS = 2 * 1000 * 1000, /* then others have theirs */
    MAX_DECODING = 16,         /* pictures under way */
};

static void go_on(struct mip_batch *batch);

static struct mip_part *part_at(struct mip_batch *batch, size_t i) {
    return batch->parts[(batch->oldest + i) % MIP_BATCH_PARTS];
}

/* Called with `stepping`: what a cancelled call does at once must not lead to another step. */
static void fail(struct mip_batch *batch, const struct error *err) {
    assert(batch->stepping);
    if (batch->error.status != ST_OK) {
        return;
    }
    batch->error = *err;
    for (size_t i = 0; i < batch->n_parts; i++) {
        mip_part_cancel(part_at(batch, i));
    }
}

static void end_oldest(struct mip_batch *batch) {
    mip_part_free(part_at(batch, 0));
    batch->oldest = (batch->oldest + 1) % MIP_BATCH_PARTS;
    batch->n_parts--;
    batch->short_of_memory = false;
}

/* ---- steps: each returns whether it did something -------------------------------------------- */

static bool step_submit(struct mip_batch *batch) {
    for (size_t i = 0; i < batch->n_parts; i++) {
        struct mip_part *part = part_at(batch, i);
        struct error err;
        if (part->error.status != ST_OK) {
            fail(batch, &part->error);
            return true;
        }
        if (mip_part_is_ready(part)) {
            if (mip_part_submit(part, &err) != ST_OK) {
                fail(batch, &err);
            }
            return true;
        }
    }
    return false;
}

/* Is it all that the packet asks for? Then its outputs may stay until the answer is sent. */
static bool is_alone(const struct mip_batch *batch, const struct mip_part *part) {
    return part->n == batch->source.infer->batch;
}

static bool is_written(const struct mip_part *part) {
    return part->state == MIP_PART_ANSWERED && part->n_written == part->n;
}

static bool step_write(struct mip_batch *batch) {
    struct mip_part *part = batch->n_parts > 0 ? part_at(batch, 0) : NULL;
    struct error err;
    bool more = false;
    if (!part || part->state != MIP_PART_ANSWERED || is_written(part)) {
        return false;
    }
    if (mip_part_write(part, &batch->writer, is_alone(batch, part), &more, &err) != ST_OK) {
        fail(batch, &err);
    } else if (!more && batch->writer.n_views == 0) {
        end_oldest(batch);
    }
    return true;
}

/* What a new part may take. Returns: 0 when there is nothing left. */
static size_t room(struct mip_batch *batch) {
    size_t used = arena_bytes(batch->arena);
    for (size_t i = 0; i < batch->n_parts; i++) {
        used += arena_bytes(part_at(batch, i)->arena);
    }
    return used < batch->memory_bytes ? (size_t)(batch->memory_bytes - used) : 0;
}

/* Parts under way give memory back when they end; where there are none it is over. */
static bool lack_memory(struct mip_batch *batch, const struct error *err) {
    if (batch->n_parts == 0) {
        fail(batch, err);
        return true;
    }
    batch->short_of_memory = true;
    return false;
}

static bool step_begin(struct mip_batch *batch) {
    size_t left = batch->source.infer->batch - batch->n_taken;
    uint64_t max = batch->source.plan->max_batch;
    struct error err;
    if (left == 0 || batch->n_parts == MIP_BATCH_PARTS || batch->short_of_memory) {
        return false;
    }
    size_t memory = room(batch);
    struct mip_part *part = memory > 0 ? mip_part_new(&batch->source, batch->n_taken,
                                                      left < max ? left : (size_t)max, memory)
                                       : NULL;
    if (!part) {
        error_set(&err, ST_NO_MEMORY, "out of memory for a part of the batch");
        return lack_memory(batch, &err);
    }
    batch->parts[(batch->oldest + batch->n_parts) % MIP_BATCH_PARTS] = part;
    batch->n_parts++;
    return true;
}

/* The newest part could not take its next element for want of memory. */
static bool make_do(struct mip_batch *batch, struct mip_part *part, const struct error *err) {
    if (part->n > 0) {
        mip_part_close(part); /* it runs with fewer */
        return true;
    }
    mip_part_free(part);
    batch->n_parts--;
    return lack_memory(batch, err);
}

static bool step_gather(struct mip_batch *batch) {
    struct mip_part *part = batch->n_parts > 0 ? part_at(batch, batch->n_parts - 1) : NULL;
    struct error err;
    bool taken = false;
    if (!part || part->state != MIP_PART_GATHERING) {
        return step_begin(batch);
    }
    size_t n_decoding = 0;
    for (size_t i = 0; i < batch->n_parts; i++) {
        n_decoding += part_at(batch, i)->n_decoding;
    }
    if (n_decoding >= MAX_DECODING) {
        return false;
    }
    enum status st = mip_part_take(part, &taken, &err);
    if (st == ST_NO_MEMORY) {
        return make_do(batch, part, &err);
    }
    if (st != ST_OK) {
        fail(batch, &err);
        return true;
    }
    batch->n_taken += taken;
    if (!taken || part->n == part->capacity) {
        mip_part_close(part);
    }
    return true;
}

/* After a failure: whatever has come back is given back. */
static bool step_end(struct mip_batch *batch) {
    if (batch->n_parts == 0 || !mip_part_is_quiet(part_at(batch, 0))) {
        return false;
    }
    end_oldest(batch);
    return true;
}

static bool step(struct mip_batch *batch) {
    if (batch->error.status != ST_OK) {
        return step_end(batch);
    }
    return step_submit(batch) || step_write(batch) || step_gather(batch);
}

/* ---- turns ----------------------------------------------------------------------------------- */

static bool is_over(struct mip_batch *batch) {
    if (batch->n_parts == 0) {
        return batch->error.status != ST_OK || batch->n_taken == batch->source.infer->batch;
    }
    return batch->error.status == ST_OK && is_alone(batch, part_at(batch, 0)) &&
           is_written(part_at(batch, 0));
}

static void finish(struct mip_batch *batch) {
    batch->over = true;
    if (batch->error.status == ST_OK) {
        batch->error.status = mip_answer_end(&batch->writer, batch->source.infer, &batch->pieces,
                                             &batch->n_pieces, &batch->error);
    }
    batch->done(batch);
}

static void on_turn(struct worker_msg *msg) {
    struct mip_batch *batch = (struct mip_batch *)((char *)msg - offsetof(struct mip_batch, msg));
    batch->posted = false;
    go_on(batch);
}

static void go_on(struct mip_batch *batch) {
    if (batch->stepping || batch->posted || batch->over) {
        return;
    }
    uint64_t until_ns = clock_now_ns() + TURN_NS;
    batch->stepping = true;
    while (step(batch)) {
        if (clock_now_ns() >= until_ns) {
            batch->posted = true;
            worker_post(batch->source.worker, &batch->msg);
            break;
        }
    }
    batch->stepping = false;
    if (!batch->posted && is_over(batch)) {
        finish(batch);
    }
}

static void on_moved(struct mip_part *part) {
    go_on((struct mip_batch *)((char *)part->source - offsetof(struct mip_batch, source)));
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* What is known to be needed at least: the first element's tensors. It is looked at before anything
 * is allocated. */
static enum status check_need(const struct mip_batch *batch, struct error *err) {
    const struct mip_infer *infer = batch->source.infer;
    size_t sum = 0;
    bool counts = true;
    for (size_t i = 0; i < infer->n_inputs && counts; i++) {
        const struct mip_input *input = &batch->source.plan->inputs[i];
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
    batch->source.moved = on_moved;
    batch->msg.run = on_turn;
    batch->stepping = true;
    if (check_need(batch, &err) != ST_OK ||
        mip_answer_begin(&batch->writer, batch->arena, batch->source.plan, &err) != ST_OK) {
        fail(batch, &err);
    }
    batch->stepping = false;
    go_on(batch);
}

void mip_batch_cancel(struct mip_batch *batch) {
    struct error err;
    if (batch->over) {
        return;
    }
    assert(!batch->stepping);
    error_set(&err, ST_CANCELLED, "the client went away before its answer");
    batch->stepping = true;
    fail(batch, &err);
    batch->stepping = false;
    go_on(batch);
}

void mip_batch_release(struct mip_batch *batch) {
    assert(batch->over);
    while (batch->n_parts > 0) {
        end_oldest(batch);
    }
}
