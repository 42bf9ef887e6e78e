/* One inference over MIP: the packet is decoded, checked against the model, and run as a batch,
 * whose outputs are sent as one packet. */
#include "serve/frontend/mip/inference.h"

#include <stddef.h>

#include "core/base/compiler.h"
#include "core/base/plural.h"
#include "serve/frontend/mip/batch.h"

/* One packet; lives in the exchange's arena. */
struct mip_inference {
    struct mip_batch batch;
    struct mip_infer infer;
    struct mip_exchange *exchange;
    struct model_version *version;    /* a reference, until the exchange ends */
    struct memory_reservation answer; /* the packet that is sent */
    bool started;
};

static void reply_failure(struct mip_exchange *exchange, const struct error *err) {
    struct error named = *err;
    if (err->status == ST_NO_MEMORY) { /* adds the setting */
        error_set(&named, ST_NO_MEMORY, "%s (--request-memory)", err->text);
    }
    inference_count_answer(err->status);
    mip_reply_error(exchange, &named);
}

/* ---- the answer ------------------------------------------------------------------------------ */

static void on_sent(void *user) {
    mip_batch_fini(user);
}

static void on_done(struct mip_batch *batch) {
    struct mip_inference *call = CONTAINER_OF(batch, struct mip_inference, batch);
    if (batch->error.status != ST_OK) {
        mip_batch_fini(batch);
        reply_failure(call->exchange, &batch->error);
        return;
    }
    inference_count_answer(ST_OK);
    memory_hold(call->exchange->account, &call->answer, mip_batch_answer_bytes(batch));
    struct mip_answer answer = {
        .pieces = batch->pieces, .n_pieces = batch->n_pieces, .release = on_sent, .user = batch};
    mip_reply(call->exchange, &answer);
}

/* ---- the request ----------------------------------------------------------------------------- */

/* Clause: MIP, "Inference": n-input is the number of the model's inputs. Optional inputs may be
 * omitted at the end. */
static enum status check_counts(const struct mip_infer *infer, const struct mip_plan *plan,
                                struct error *err) {
    const struct model_spec *spec = plan->spec;
    char name[QUOTED_NAME_BYTES];
    if (spec->n_outputs > MIP_MAX_TENSORS) {
        return error_set(err, ST_UNSUPPORTED,
                         "model %s has %zu outputs, a packet can have at most %d",
                         quote_name(spec->name, name), spec->n_outputs, MIP_MAX_TENSORS);
    }
    if (infer->n_inputs >= plan->n_required && infer->n_inputs <= spec->n_inputs) {
        return ST_OK;
    }
    if (plan->n_required == spec->n_inputs) {
        return error_set(err, ST_BAD_INPUTS, "model %s has %zu input%s, the packet %u",
                         quote_name(spec->name, name), spec->n_inputs, plural_s(spec->n_inputs),
                         infer->n_inputs);
    }
    return error_set(err, ST_BAD_INPUTS,
                     "model %s has %zu inputs, of which the last %zu may be left out; the packet "
                     "has %u",
                     quote_name(spec->name, name), spec->n_inputs,
                     spec->n_inputs - plan->n_required, infer->n_inputs);
}

/* The packet is decoded first: a malformed one is reported as such even when there is no model. One
 * with more items than a batch for one input can have is decoded after its counts were compared
 * with the model's, because decoding takes long when there are millions. */
static enum status prepare_inference(struct mip_inference *call, struct mip_api *api,
                                     struct error *err) {
    struct mip_exchange *exchange = call->exchange;
    const struct mip_target *target = exchange->listener;
    struct mip_infer *infer = &call->infer;
    bool may_have_many = exchange->payload.len > (size_t)MIP_MAX_BATCH * MIP_ITEM_HEAD_BYTES;
    enum status st =
        may_have_many ? mip_infer_counts_decode(exchange->payload, false, infer, err) : ST_OK;
    bool decodes_last = may_have_many && infer->n_items > MIP_MAX_BATCH;
    if (st == ST_OK && !decodes_last) {
        st = mip_infer_decode(exchange->arena, exchange->payload, false, infer, err);
    }
    if (st == ST_OK) {
        st = atomic_load_explicit(&target->resolved, memory_order_acquire)
                 ? repository_find(api->services.repository, target->model, target->version,
                                   &call->version, err)
                 : error_set(err, ST_NOT_READY, "the model repositories are still being scanned");
    }
    if (st != ST_OK) {
        return st;
    }
    const struct mip_plan *plan = mip_plan_of(call->version);
    if (plan->spec->decoupled) {
        return inference_refuse_decoupled(plan->spec, MIP_CARRIES_ONE, err);
    }
    call->batch.context =
        (struct mip_chunk_context){.worker = exchange->worker,
                                   .account = exchange->account,
                                   .version = call->version,
                                   .plan = plan,
                                   .infer = &call->infer,
                                   .services = &api->services,
                                   .pictures = api->pictures,
                                   .is_large = exchange->payload.len >= MIP_LARGE_BYTES};
    call->batch.arena = exchange->arena;
    call->batch.memory_bytes = api->request_memory;
    call->batch.done = on_done;
    st = check_counts(infer, plan, err);
    return st == ST_OK && decodes_last
               ? mip_infer_decode(exchange->arena, exchange->payload, false, infer, err)
               : st;
}

static void on_infer(struct mip_exchange *exchange, void *context) {
    struct error err;
    struct mip_inference *call = arena_calloc(exchange->arena, 1, sizeof *call);
    if (!call) {
        error_no_memory(&err, "the packet");
        reply_failure(exchange, &err);
        return;
    }
    call->exchange = exchange;
    exchange->user = call;
    if (prepare_inference(call, context, &err) != ST_OK) {
        reply_failure(exchange, &err);
        return;
    }
    call->started = true;
    mip_batch_start(&call->batch);
}

static void on_disconnect(struct mip_exchange *exchange, void *context) {
    struct mip_inference *call = exchange->user;
    (void)context;
    if (call && call->started) {
        mip_batch_cancel(&call->batch);
    }
}

static void on_end(struct mip_exchange *exchange, void *context) {
    struct mip_inference *call = exchange->user;
    (void)context;
    if (call) {
        memory_release(&call->answer, !exchange->client_disconnected);
    }
    if (call && call->version) {
        model_version_unref(call->version);
    }
}

struct mip_handler mip_api_handler(struct mip_api *api) {
    return (struct mip_handler){
        .context = api, .on_infer = on_infer, .on_disconnect = on_disconnect, .on_end = on_end};
}
