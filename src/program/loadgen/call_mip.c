/* MIP: sends the items given by flags, because MIP servers have no model metadata. */
#include <inttypes.h>

#include "client/mip_convert.h"
#include "core/must/must.h"
#include "program/loadgen/call.h"
#include "program/requests/infer_mip_items.h"

/* ---- the request ----------------------------------------------------------------------------- */

/* Repeats the items of one batch element. */
static enum status repeat_items(struct arena *arena, uint64_t batch, struct infer_items *items,
                                struct error *err) {
    size_t n = items->n * (size_t)batch;
    if (items->batch != 1) {
        return error_set(err, ST_BAD_CONFIG,
                         "--batch %" PRIu64
                         ": items for %u elements were given; give those of one, "
                         "or of all",
                         batch, items->batch);
    }
    sluice_mip_item *all = arena_calloc(arena, n, sizeof(*all));
    for (size_t i = 0; i < n; i++) {
        all[i] = items->items[i % items->n];
    }
    items->items = all;
    items->n = n;
    items->batch = (uint32_t)batch;
    return ST_OK;
}

static enum status mip_prepare(struct arena *arena, const struct bench_settings *settings,
                               struct bench_call *call, struct error *err) {
    const struct bench_options *options = &settings->options;
    struct infer_item_flags flags = {.images = &options->images,
                                     .texts = &options->texts,
                                     .jsons = &options->json_items,
                                     .json_flag = "json-item",
                                     .n_inputs = options->n_inputs,
                                     .max_input_size = BENCH_MAX_ANSWER_BYTES};
    struct infer_items items;
    if (call->ping) {
        return ST_OK;
    }
    enum status status = infer_items_collect(arena, &flags, &items, err);
    if (status == ST_OK && options->batch != 1 && options->batch != items.batch) {
        status = repeat_items(arena, options->batch, &items, err);
    }
    if (status != ST_OK) {
        return status;
    }
    sluice_mip_request request = {.size = sizeof(request),
                                  .items = items.items,
                                  .n_inputs = items.n_inputs,
                                  .batch = items.batch};
    status = client_mip_import(arena, &request, &call->mip, &call->mip_bytes, err);
    call->batch = items.batch;
    call->n_bytes = call->mip_bytes;
    return status;
}

/* ---- an exchange ----------------------------------------------------------------------------- */

static enum status mip_start(void *connection, const struct bench_call *call, struct error *err) {
    struct mip_session *session = client_mip(connection);
    enum status status = ST_OK;
    if (call->ping) {
        mip_session_begin_ping(session);
    } else {
        status = mip_session_begin_infer(session, &call->mip, call->mip_bytes, NULL, 0, err);
    }
    if (status == ST_OK) {
        client_start(connection, 0);
    }
    return status;
}

/* Checks the payload against its counts, and the counts against the request. */
static enum status read_answer(const struct mip_session *session, const struct bench_call *call,
                               struct error *err) {
    struct arena *arena = must_arena_new("an answer");
    struct client_mip_answer answer;
    enum status status =
        client_mip_export(arena, mip_session_payload(session), &call->mip, &answer, err);
    arena_free(arena);
    return status;
}

static enum status mip_take(void *connection, const struct bench_call *call, bool whole,
                            uint64_t *n_bytes, struct bench_error *failed) {
    const struct mip_session *session = client_mip(connection);
    enum status status = client_mip_check(session, 0, &failed->err);
    *n_bytes = mip_session_payload_bytes(session);
    if (status == ST_REFUSED) {
        failed->mip_error = (int32_t)mip_session_error(session);
    }
    return status == ST_OK && whole && !call->ping ? read_answer(session, call, &failed->err)
                                                   : status;
}

const struct bench_protocol bench_protocol_mip = {
    .name = "MIP",
    .schemes = "tcp unix ",
    .prepare = mip_prepare,
    .open = bench_client_open,
    .close = bench_client_close,
    .start = mip_start,
    .step = bench_client_step,
    .wait = bench_client_wait,
    .take = mip_take,
};
