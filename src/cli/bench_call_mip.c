/* MIP: the items that were given, since a server of MIP does not say what its model wants. */
#include <inttypes.h>

#include "cli/bench_client.h"
#include "cli/infer_mip_items.h"

static enum status no_memory(struct error *err) {
    return error_set(err, ST_NO_MEMORY, "no memory for a request");
}

static sluice_client_status mip_start(void *connection, const struct bench_call *call,
                                      sluice_client_error *error) {
    return call->ping ? sluice_client_start_ping(connection, error)
                      : sluice_client_start_mip_infer(connection, &call->mip, error);
}

static sluice_client_status mip_take(void *connection, const struct bench_call *call,
                                     uint64_t *n_bytes, sluice_client_error *error) {
    sluice_mip_answer answer = {.size = sizeof(answer)};
    *n_bytes = 0;
    if (call->ping) {
        return SLUICE_CLIENT_OK;
    }
    sluice_client_status status = sluice_client_take_mip_infer(connection, &answer, error);
    size_t n = status == SLUICE_CLIENT_OK ? (size_t)answer.batch * answer.n_outputs : 0;
    for (size_t i = 0; i < n; i++) {
        *n_bytes += answer.items[i].n_bytes;
    }
    return status;
}

/* Repeats the items of one element. */
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
    if (!all) {
        return no_memory(err);
    }
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
                                     .jsons = &options->jsons,
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
    for (size_t i = 0; i < items.n; i++) {
        call->n_bytes += items.items[i].n_bytes;
    }
    call->batch = items.batch;
    call->mip = (sluice_mip_request){.size = sizeof(call->mip),
                                     .items = items.items,
                                     .n_inputs = items.n_inputs,
                                     .batch = items.batch};
    return ST_OK;
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
