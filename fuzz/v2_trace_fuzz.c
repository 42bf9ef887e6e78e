/* Trace settings, the same bytes as JSON and as protobuf: an error has a text and one of the
 * protocol's statuses; accepted settings are in range and can be sent again. */
#include "codec/kserve/trace.h"
#include "codec/kserve/v2_fixture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds) {
    if (!holds) {
        __builtin_trap();
    }
}

static void check_update(enum status st, const struct v2_trace_update *update,
                         const struct error *err) {
    check(update->change[V2_TRACE_FILE] == V2_TRACE_KEEP); /* it can't be changed */
    check(st == ST_OK || (err->status == st && err->text[0] != '\0'));
    check(update->values.count >= -1 && update->values.level <= 3);
    check(update->values.rate <= INT32_MAX && update->values.log_frequency <= INT32_MAX);
}

/* The printed values decode to the same settings. */
static void check_printed_update(struct arena *arena, const struct v2_trace_update *update) {
    struct v2_trace_settings settings = {.values = update->values, .opentelemetry = true};
    struct v2_trace_update again;
    struct error err;
    struct buf text;
    buf_init(&text, arena, 256);
    v2_grpc_trace_encode(&text, &settings);
    check(v2_grpc_trace_decode(buf_str(&text), &again, &err) == ST_OK);
    check(again.values.level == update->values.level && again.values.rate == update->values.rate &&
          again.values.count == update->values.count);
    buf_init(&text, arena, 256);
    v2_trace_print(&text, &settings);
    check(v2_trace_decode(arena, buf_str(&text), &fixture_limits, &again, &err) == ST_OK);
    check(again.values.level == update->values.level && again.values.rate == update->values.rate &&
          again.values.count == update->values.count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct arena *arena = arena_new(NULL, 0);
    struct str bytes = str_make((const char *)data, size);
    struct v2_trace_update update;
    struct error err = {0}, other = {0};
    enum status st = v2_trace_decode(arena, bytes, &fixture_limits, &update, &err);
    check_update(st, &update, &err);
    if (st == ST_OK) {
        check_printed_update(arena, &update);
    }
    st = v2_grpc_trace_decode(bytes, &update, &other);
    check_update(st, &update, &other);
    check(st != ST_INTERNAL && st != ST_NOT_READY); /* used over HTTP only */
    if (st == ST_OK) {
        check_printed_update(arena, &update);
    }
    arena_free(arena);
    return 0;
}
