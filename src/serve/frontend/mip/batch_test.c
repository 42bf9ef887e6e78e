/* The batch of a packet without a socket: how it is cut into calls, the order of the outputs, and
 * that nothing is left after each failure. */
#include "core/base/compiler.h"
#include "serve/frontend/mip/batch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "core/base/log.h"
#include "core/base/metric/metric.h"
#include "serve/repository/test_rig.h"

enum { MAX_CALLS = 64, ANSWER_BYTES = 1 << 16 };

/* ---- a model with free rows ------------------------------------------------------------------ */

/* x and y, FP32 [N,-1] (or [-1,-1] without a batch): y is x. The calls are recorded in the order in
 * which they begin. */
static struct {
    int n_calls;
    int64_t dims[MAX_CALLS][2];
    size_t n_pieces[MAX_CALLS];
} seen;

static sluice_status describe(sluice_model *model, sluice_model_info *info, sluice_error *error) {
    static const int64_t dims[2] = {-1, -1};
    static const char *const symbols[2] = {"N", ""};
    static const sluice_tensor_info x = {
        .name = "x", .datatype = SLUICE_FP32, .dims = dims, .rank = 2, .symbols = symbols};
    static const sluice_tensor_info y = {
        .name = "y", .datatype = SLUICE_FP32, .dims = dims, .rank = 2, .symbols = symbols};
    (void)model;
    (void)error;
    info->inputs = &x;
    info->n_inputs = 1;
    info->outputs = &y;
    info->n_outputs = 1;
    return SLUICE_OK;
}

static void note(const sluice_input *x) {
    if (seen.n_calls < MAX_CALLS) {
        seen.dims[seen.n_calls][0] = x->dims[0];
        seen.dims[seen.n_calls][1] = x->dims[1];
        seen.n_pieces[seen.n_calls] = x->n_pieces;
    }
    seen.n_calls++;
}

struct gathered {
    sluice_model *model;
    char bytes[];
};

static void give_back(void *cookie) {
    struct gathered *gathered = cookie;
    atomic_fetch_add(&gathered->model->n_released, 1);
    free(gathered);
}

/* Copies x, which may be in pieces, and sets its shape to `dims`. */
static void answer_with(sluice_model *model, const sluice_request *request, const int64_t *dims,
                        size_t rank) {
    const sluice_input *x = &request->inputs[0];
    struct gathered *gathered = malloc(sizeof(*gathered) + x->n_bytes);
    assert_non_null(gathered);
    gathered->model = model;
    size_t at = 0;
    for (size_t i = 0; i < x->n_pieces; i++) {
        memcpy(gathered->bytes + at, x->pieces[i].data, x->pieces[i].n_bytes);
        at += x->pieces[i].n_bytes;
    }
    sluice_output y = {.datatype = SLUICE_FP32,
                       .dims = dims,
                       .rank = rank,
                       .data = gathered->bytes,
                       .n_bytes = x->n_bytes};
    sluice_response response = {.size = sizeof(response),
                                .outputs = &y,
                                .n_outputs = 1,
                                .final = 1,
                                .release = give_back,
                                .cookie = gathered};
    backend_host()->respond(request, &response);
}

static void echo(sluice_model *model, const sluice_request *request) {
    note(&request->inputs[0]);
    answer_with(model, request, request->inputs[0].dims, 2);
}

/* All elements in one row. */
static void echo_flat(sluice_model *model, const sluice_request *request) {
    const int64_t *dims = request->inputs[0].dims;
    answer_with(model, request, (int64_t[]){1, dims[0] * dims[1]}, 2);
}

/* From the second call on. */
static void echo_once(sluice_model *model, const sluice_request *request) {
    if (seen.n_calls == 0) {
        echo(model, request);
        return;
    }
    sluice_response response = {
        .size = sizeof(response), .status = SLUICE_INTERNAL, .error = "no more", .final = 1};
    backend_host()->respond(request, &response);
}

/* ---- a packet -------------------------------------------------------------------------------- */

struct packet {
    struct rig rig;
    sluice_backend backend;
    struct mip_batch batch;
    struct arena *arena;
    struct mip_infer infer;
    struct pictures *pictures;
    const struct mip_plan *plan;
    struct inference_services services;
    bool cancels;            /* right after the start */
    struct worker_msg other; /* posted before the start */
    bool other_ran, other_ran_before_done;
    int n_done;
    enum status status;
    char text[ERROR_TEXT_BYTES];
    char *answer; /* the items, separated by spaces */
    size_t answer_len;
};

static void open_packet(struct packet *packet, struct model_config config, uint16_t batch) {
    struct error err;
    memset(packet, 0, sizeof(*packet));
    memset(&seen, 0, sizeof(seen));
    packet->backend = rig_backend;
    packet->backend.model_describe = describe;
    config.latest_count = 1;
    assert_int_equal(rig_open_with(&packet->rig, &packet->backend, &config, MIP_BATCH_CHUNKS, &err),
                     ST_OK);
    packet->rig.model->handle_request = echo;
    packet->services.limits = (struct json_limits){1 << 20, 100, 1 << 20};
    packet->arena = arena_new(NULL, 0);
    assert_int_equal(mip_plan_new(packet->arena, model_version_spec(packet->rig.version),
                                  model_version_config(packet->rig.version), STR("."),
                                  &packet->plan, &err),
                     ST_OK);
    packet->infer = (struct mip_infer){.n_inputs = 1, .batch = batch, .n_items = batch};
    packet->infer.items = arena_calloc(packet->arena, batch, sizeof(*packet->infer.items));
    packet->batch.memory_bytes = 1 << 24;
}

/* Item i is [i, i, …], with the widths of `widths`, repeated. */
static void fill(struct packet *packet, const size_t *widths, size_t n_widths) {
    for (size_t i = 0; i < packet->infer.batch; i++) {
        struct buf text;
        buf_init(&text, packet->arena, 0);
        for (size_t k = 0; k < widths[i % n_widths]; k++) {
            buf_printf(&text, "%c%zu", k == 0 ? '[' : ',', i);
        }
        buf_add_char(&text, ']');
        packet->infer.items[i] = (struct mip_item){MIP_JSON, buf_str(&text)};
    }
}

static void take_answer(struct packet *packet) {
    struct buf all, text;
    struct mip_infer decoded;
    struct error err;
    buf_init(&all, packet->arena, 0);
    for (size_t i = 0; i < packet->batch.n_pieces; i++) {
        buf_add(&all, packet->batch.pieces[i].data, packet->batch.pieces[i].n_bytes);
    }
    struct str payload = str_make(all.data + MIP_HEADER_BYTES, all.len - MIP_HEADER_BYTES);
    assert_int_equal(mip_infer_decode(packet->arena, payload, true, &decoded, &err), ST_OK);
    assert_int_equal(decoded.n_inputs, 1);
    assert_int_equal(decoded.batch, packet->infer.batch);
    buf_init(&text, packet->arena, 0);
    for (size_t i = 0; i < decoded.n_items; i++) {
        buf_printf(&text, "%s%.*s", i > 0 ? " " : "", STR_ARG(decoded.items[i].data));
    }
    packet->answer = text.data;
    packet->answer_len = text.len;
}

static void on_done(struct mip_batch *batch) {
    struct packet *packet = CONTAINER_OF(batch, struct packet, batch);
    packet->n_done++;
    packet->other_ran_before_done = packet->other_ran;
    packet->status = batch->error.status;
    if (batch->error.status == ST_OK) {
        take_answer(packet);
    } else {
        snprintf(packet->text, sizeof(packet->text), "%s", batch->error.text);
    }
    mip_batch_fini(batch);
    worker_stop(packet->rig.worker);
}

static void on_other(struct worker_msg *msg) {
    (CONTAINER_OF(msg, struct packet, other))->other_ran = true;
}

static void start(struct rig *rig) {
    struct packet *packet = (struct packet *)(void *)rig;
    packet->batch.context = (struct mip_chunk_context){.worker = rig->worker,
                                                       .version = rig->version,
                                                       .plan = packet->plan,
                                                       .infer = &packet->infer,
                                                       .services = &packet->services,
                                                       .pictures = packet->pictures};
    packet->batch.arena = packet->arena;
    packet->batch.done = on_done;
    packet->other.run = on_other;
    worker_post(rig->worker, &packet->other);
    mip_batch_start(&packet->batch);
    if (packet->cancels) {
        mip_batch_cancel(&packet->batch);
        atomic_store(&rig->model->gate_closed, false);
    }
}

/* Runs the packet, and checks that nothing is left of it. */
static void run(struct packet *packet) {
    int64_t arenas = metric_read(METRIC_ARENAS), held = metric_read(METRIC_OUTPUTS_HELD);
    rig_run(&packet->rig, start, 1);
    assert_int_equal(packet->n_done, 1);
    assert_int_equal(metric_read(METRIC_ARENAS), arenas);
    assert_int_equal(metric_read(METRIC_OUTPUTS_HELD), held);
}

static void close_packet(struct packet *packet) {
    rig_close(&packet->rig);
    arena_free(packet->arena);
}

static void expect_failure(struct packet *packet, enum status status, const char *says) {
    assert_int_equal(packet->status, status);
    if (!strstr(packet->text, says)) {
        fail_msg("\"%s\" lacks \"%s\"", packet->text, says);
    }
}

/* The answer to `fill`. */
static void expect_echo(struct packet *packet, const size_t *widths, size_t n_widths) {
    struct buf text;
    if (packet->status != ST_OK) {
        fail_msg("%s", packet->text);
    }
    buf_init(&text, packet->arena, 0);
    for (size_t i = 0; i < packet->infer.batch; i++) {
        for (size_t k = 0; k < widths[i % n_widths]; k++) {
            buf_printf(&text, "%s%c%zu.0", i > 0 && k == 0 ? " " : "", k == 0 ? '[' : ',', i);
        }
        buf_add_char(&text, ']');
    }
    assert_int_equal(packet->answer_len, text.len);
    assert_memory_equal(packet->answer, text.data, text.len);
}

static const size_t four[] = {4};
static const enum model_run_on places[] = {RUN_ON_WORKER, RUN_ON_INSTANCE, RUN_AUTO};
enum { N_PLACES = sizeof(places) / sizeof(places[0]) };

/* ---- calls ----------------------------------------------------------------------------------- */

static int count_calls(const int64_t dims[2]) {
    int n = 0;
    for (int i = 0; i < seen.n_calls && i < MAX_CALLS; i++) {
        n += memcmp(seen.dims[i], dims, sizeof(seen.dims[i])) == 0;
    }
    return n;
}

/* RIG_ROWS_MAX is the model's largest batch. */
static void batch_over_model_limit_is_split_into_calls(void **state) {
    (void)state;
    static const uint16_t batches[] = {1, 2, 7, 8, 9, 16, 17, 40, 100};
    for (size_t i = 0; i < N_PLACES * (sizeof(batches) / sizeof(batches[0])); i++) {
        uint16_t batch = batches[i / N_PLACES];
        struct packet packet;
        open_packet(&packet, (struct model_config){.run_on = places[i % N_PLACES]}, batch);
        fill(&packet, four, 1);
        run(&packet);
        expect_echo(&packet, four, 1);
        assert_int_equal(seen.n_calls, (batch + 7) / 8);
        assert_int_equal(count_calls((int64_t[]){8, 4}), batch / 8);
        assert_int_equal(count_calls((int64_t[]){batch % 8, 4}), batch % 8 > 0);
        close_packet(&packet);
    }
}

static void batch_of_unbatched_model_runs_call_per_element(void **state) {
    (void)state;
    for (size_t i = 0; i < N_PLACES; i++) {
        struct packet packet;
        struct model_config config = {.run_on = places[i], .has_max_batch_size = true};
        open_packet(&packet, config, 20);
        for (size_t k = 0; k < 20; k++) {
            packet.infer.items[k] = (struct mip_item){MIP_JSON, STR("[[1,2],[3,4],[5,6]]")};
        }
        run(&packet);
        assert_int_equal(packet.status, ST_OK);
        assert_int_equal(seen.n_calls, 20);
        assert_int_equal(seen.dims[19][0], 3);
        assert_int_equal(strncmp(packet.answer, "[[1.0,2.0],[3.0,4.0],[5.0,6.0]] [[1.0", 37), 0);
        close_packet(&packet);
    }
}

/* Neighbouring elements of one shape run together. */
static void batch_with_mixed_shapes_is_split_by_shape(void **state) {
    (void)state;
    static const size_t widths[] = {2, 2, 2, 3, 2, 2, 1, 1};
    static const int64_t calls[][2] = {{3, 2}, {1, 3}, {2, 2}, {2, 1}};
    for (size_t i = 0; i < N_PLACES; i++) {
        struct packet packet;
        open_packet(&packet, (struct model_config){.run_on = places[i]}, 24);
        fill(&packet, widths, 8);
        run(&packet);
        expect_echo(&packet, widths, 8);
        assert_int_equal(seen.n_calls, 12);
        for (size_t k = 0; k < 4; k++) { /* the scheduler chooses the order */
            assert_int_equal(count_calls(calls[k]), 3);
        }
        close_packet(&packet);
    }
}

/* The largest batch; the worker's other messages run meanwhile. */
static void batch_of_maximum_size_yields_to_worker(void **state) {
    (void)state;
    struct packet packet;
    open_packet(&packet, (struct model_config){.run_on = RUN_ON_WORKER}, MIP_MAX_BATCH);
    fill(&packet, four, 1);
    clock_set_fake_ns(1000000000);
    packet.rig.model->execution_ns = 5000000; /* longer than STEP_BUDGET_NS */
    run(&packet);
    clock_set_fake_ns(0);
    expect_echo(&packet, four, 1);
    assert_int_equal(seen.n_calls, (MIP_MAX_BATCH + 7) / 8);
    assert_true(packet.other_ran_before_done);
    close_packet(&packet);
}

/* ---- failures -------------------------------------------------------------------------------- */

static const struct {
    struct mip_item item;
    enum status status;
    const char *says;
} bad_items[] = {
    {{MIP_JSON, STR("[1,2")}, ST_BAD_JSON, "batch element 13, input \"x\": "},
    {{MIP_JSON, STR("[[1,2],[3,4]]")}, ST_BAD_SHAPE, "batch element 13, input \"x\": item"},
    {{MIP_JSON, STR("[\"a\"]")}, ST_BAD_FIELD, "batch element 13, input \"x\": item[0]"},
    {{MIP_TEXT, STR("hello")}, ST_BAD_JSON, "batch element 13, input \"x\": "},
    {{MIP_IMAGE, STR("hello")}, ST_UNSUPPORTED, "its shape [-1] is not that of a picture"},
    {{7, STR("hello")}, ST_UNSUPPORTED, "expected an item of type 1 (TEXT), 2 (JSON) or 3"},
};

static void batch_with_bad_item_fails(void **state) {
    (void)state;
    for (size_t i = 0; i < N_PLACES * (sizeof(bad_items) / sizeof(bad_items[0])); i++) {
        struct packet packet;
        open_packet(&packet, (struct model_config){.run_on = places[i % N_PLACES]}, 20);
        fill(&packet, four, 1);
        packet.infer.items[13] = bad_items[i / N_PLACES].item;
        run(&packet);
        expect_failure(&packet, bad_items[i / N_PLACES].status, bad_items[i / N_PLACES].says);
        close_packet(&packet);
    }
}

static void batch_with_failed_call_fails(void **state) {
    (void)state;
    for (size_t i = 0; i < N_PLACES; i++) {
        struct packet packet;
        open_packet(&packet, (struct model_config){.run_on = places[i]}, 60);
        fill(&packet, four, 1);
        packet.rig.model->handle_request = echo_once;
        run(&packet);
        expect_failure(&packet, ST_BACKEND_FAILED, "no more");
        close_packet(&packet);
    }
}

static void batch_with_unbatched_output_fails(void **state) {
    (void)state;
    struct packet packet;
    open_packet(&packet, (struct model_config){.run_on = RUN_ON_WORKER}, 3);
    fill(&packet, four, 1);
    packet.rig.model->handle_request = echo_flat;
    run(&packet);
    expect_failure(&packet, ST_BAD_OUTPUT, "expected the batch of 3 as its first dimension");
    close_packet(&packet);
}

/* Running chunks end before the cancelled batch does. */
static void batch_cancelled_waits_for_running_calls(void **state) {
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct packet packet;
        open_packet(&packet, (struct model_config){.run_on = RUN_ON_INSTANCE}, 100);
        fill(&packet, four, 1);
        packet.cancels = true;
        atomic_store(&packet.rig.model->gate_closed, i == 0);
        run(&packet);
        expect_failure(&packet, ST_CANCELLED, "the client closed the connection");
        assert_true(seen.n_calls <= MIP_BATCH_CHUNKS);
        close_packet(&packet);
    }
}

/* ---- pictures -------------------------------------------------------------------------------- */

static struct pictures *undecodable_pictures_new(void) {
    struct pictures_options options = {.part = "/nowhere/pictures.so",
                                       .picture_threads = 1,
                                       .max_queued = 100,
                                       .max_picture_pixels = 100};
    struct pictures *pictures = NULL;
    struct error err;
    assert_int_equal(pictures_new(&options, &pictures, &err), ST_OK);
    return pictures;
}

static const int64_t picture_dims[] = {4};

/* As `input`, with pictures of four values. */
static struct mip_input picture_input(struct mip_input input) {
    input.pictures = MIP_PICTURES_DECODED;
    input.picture_dims = (struct shape){picture_dims, 1};
    input.picture = (struct picture_plan){
        .width = 2, .height = 2, .color = PICTURE_GREY, .datatype = DT_FP32, .scale = 1};
    input.picture_bytes = 16;
    return input;
}

/* x takes pictures; there is no picture decoder. */
static void batch_with_undecodable_picture_fails(void **state) {
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct packet packet;
        open_packet(&packet, (struct model_config){.run_on = RUN_ON_INSTANCE}, 100);
        fill(&packet, four, 1);
        packet.infer.items[60] = packet.infer.items[62] =
            (struct mip_item){MIP_IMAGE, STR("no picture")};
        struct mip_input input = picture_input(packet.plan->inputs[0]);
        struct mip_plan plan = *packet.plan;
        plan.inputs = &input;
        packet.plan = &plan;
        packet.cancels = i == 1;
        packet.pictures = undecodable_pictures_new();
        run(&packet);
        if (packet.cancels) {
            expect_failure(&packet, ST_CANCELLED, "the client closed the connection");
        } else {
            expect_failure(&packet, ST_UNSUPPORTED, "batch element 6");
        }
        pictures_free(packet.pictures);
        close_packet(&packet);
    }
}

/* The calls after a picture's wait for it, although they have all their elements. */
static void batch_with_late_picture_runs_in_order(void **state) {
    (void)state;
    struct packet packet;
    static const size_t one[] = {1};
    open_packet(&packet, (struct model_config){.run_on = RUN_ON_INSTANCE}, 4);
    fill(&packet, one, 1); /* of another shape than the picture: a call of their own */
    packet.infer.items[0] = (struct mip_item){MIP_IMAGE, STR("no picture")};
    struct mip_input input = picture_input(packet.plan->inputs[0]);
    struct mip_plan plan = *packet.plan;
    plan.inputs = &input;
    packet.plan = &plan;
    packet.pictures = undecodable_pictures_new();
    run(&packet);
    expect_failure(&packet, ST_UNSUPPORTED, "batch element 0");
    assert_int_equal(seen.n_calls, 0);
    pictures_free(packet.pictures);
    close_packet(&packet);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Chunks run one after the other where two do not fit in memory, and are smaller where one does
 * not. */
static void batch_with_little_memory_uses_smaller_chunks(void **state) {
    (void)state;
    static const size_t wide[] = {300};
    for (size_t i = 0; i < N_PLACES; i++) {
        struct packet packet;
        open_packet(&packet, (struct model_config){.run_on = places[i]}, 50);
        fill(&packet, wide, 1);
        /* what the test itself has in the arena, the answer twice (it grows), and some elements */
        packet.batch.memory_bytes = arena_bytes(packet.arena) + 2 * 50 * 300 * 5 + 65536;
        run(&packet);
        expect_echo(&packet, wide, 1);
        assert_true(seen.n_calls >= 7);
        close_packet(&packet);
    }
}

static void batch_with_too_little_memory_fails(void **state) {
    (void)state;
    static const size_t wide[] = {3000};
    struct packet packet;
    open_packet(&packet, (struct model_config){.run_on = RUN_ON_INSTANCE}, 50);
    fill(&packet, wide, 1);
    packet.batch.memory_bytes = arena_bytes(packet.arena) + 20000;
    run(&packet);
    expect_failure(&packet, ST_NO_MEMORY, "");
    close_packet(&packet);
}

/* The known need of an element is checked before anything is allocated. */
static void batch_element_over_memory_limit_fails_before_call(void **state) {
    (void)state;
    struct packet packet;
    open_packet(&packet, (struct model_config){.run_on = RUN_ON_WORKER}, 1);
    fill(&packet, four, 1);
    struct mip_input input = packet.plan->inputs[0];
    struct mip_plan plan = *packet.plan;
    input.n_bytes = 1 << 25;
    plan.inputs = &input;
    packet.plan = &plan;
    run(&packet);
    expect_failure(&packet, ST_NO_MEMORY, "33554432 bytes or more, over the limit of 16777216");
    assert_int_equal(seen.n_calls, 0);
    close_packet(&packet);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batch_over_model_limit_is_split_into_calls),
        cmocka_unit_test(batch_of_unbatched_model_runs_call_per_element),
        cmocka_unit_test(batch_with_mixed_shapes_is_split_by_shape),
        cmocka_unit_test(batch_of_maximum_size_yields_to_worker),
        cmocka_unit_test(batch_with_bad_item_fails),
        cmocka_unit_test(batch_with_failed_call_fails),
        cmocka_unit_test(batch_with_unbatched_output_fails),
        cmocka_unit_test(batch_cancelled_waits_for_running_calls),
        cmocka_unit_test(batch_with_undecodable_picture_fails),
        cmocka_unit_test(batch_with_late_picture_runs_in_order),
        cmocka_unit_test(batch_with_little_memory_uses_smaller_chunks),
        cmocka_unit_test(batch_with_too_little_memory_fails),
        cmocka_unit_test(batch_element_over_memory_limit_fails_before_call),
    };
    log_configure(LOG_ERROR, LOG_TEXT);
    return cmocka_run_group_tests_name("serve/frontend/mip/batch", tests, NULL, NULL);
}
