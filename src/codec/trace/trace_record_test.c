/* A trace as the objects of a trace file. */
#include "codec/trace/trace_record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void expect(const struct trace_record *record, bool times, const char *text) {
    struct arena *arena = arena_new(NULL, 0);
    struct buf out;
    buf_init(&out, arena, 0);
    trace_record_print(&out, record, times);
    if (!str_is(buf_str(&out), text)) {
        fail_msg("%.*s", STR_ARG(buf_str(&out)));
    }
    arena_free(arena);
}

static void trace_record_print_timestamps_match(void **state) {
    struct trace_record record = {
        .id = 3, .model = STR("m"), .version = 10, .request_id = STR("a\"b")};
    (void)state;
    expect(&record, true,
           "{\"id\":3,\"model_name\":\"m\",\"model_version\":10,\"request_id\":\"a\\\"b\"}");
    record.request_id = STR("");
    record.ns[TRACE_QUEUE_START] = 7;
    record.ns[TRACE_HTTP_RECV_START] = 5;
    expect(&record, true,
           "{\"id\":3,\"model_name\":\"m\",\"model_version\":10},"
           "{\"id\":3,\"timestamps\":[{\"name\":\"HTTP_RECV_START\",\"ns\":5}]},"
           "{\"id\":3,\"timestamps\":[{\"name\":\"QUEUE_START\",\"ns\":7}]}");
    expect(&record, false, "{\"id\":3,\"model_name\":\"m\",\"model_version\":10}");
    record.parent_id = 2;
    expect(&record, false, "{\"id\":3,\"model_name\":\"m\",\"model_version\":10,\"parent_id\":2}");
    record.parent_id = 0;
    record.request_id = str_make("\xff", 1); /* invalid UTF-8 */
    expect(&record, false,
           "{\"id\":3,\"model_name\":\"m\",\"model_version\":10,\"request_id\":\"\"}");
}

/* A tensor's bytes and its expected `data` and `shape`. */
static void expect_tensor(enum datatype datatype, const void *bytes, size_t n_bytes,
                          struct shape shape, const char *data_and_shape) {
    struct piece piece = {bytes, n_bytes};
    struct trace_tensor tensor = {.is_output = datatype == DT_BOOL,
                                  .tensor = {.name = STR("t"),
                                             .datatype = datatype,
                                             .shape = shape,
                                             .pieces = &piece,
                                             .n_pieces = 1,
                                             .n_bytes = n_bytes}};
    struct trace_record record = {.id = 1, .model = STR("m"), .tensors = &tensor, .n_tensors = 1};
    char text[512];
    snprintf(text, sizeof text,
             "{\"id\":1,\"model_name\":\"m\",\"model_version\":0},{\"id\":1,\"activity\":\"%s\","
             "\"tensor\":{\"name\":\"t\",%s,\"dtype\":\"%s\"}}",
             tensor.is_output ? "TENSOR_BACKEND_OUTPUT" : "TENSOR_QUEUE_INPUT", data_and_shape,
             datatype_name(datatype));
    expect(&record, true, text);
}

static void trace_record_print_tensors_match(void **state) {
    const int32_t numbers[] = {1, -2, 3};
    const float floats[] = {0.5F};
    const unsigned char flags[] = {1, 0};
    const char strings[] = "\2\0\0\0a\"\0\0\0\0";
    (void)state;
    expect_tensor(DT_INT32, numbers, sizeof numbers, (struct shape){(int64_t[]){1, 3}, 2},
                  "\"data\":\"1,-2,3\",\"shape\":\"1,3\"");
    expect_tensor(DT_FP32, floats, sizeof floats, (struct shape){NULL, 0},
                  "\"data\":\"0.5\",\"shape\":\"\"");
    expect_tensor(DT_BOOL, flags, sizeof flags, (struct shape){(int64_t[]){2}, 1},
                  "\"data\":\"1,0\",\"shape\":\"2\"");
    expect_tensor(DT_INT32, numbers, 0, (struct shape){(int64_t[]){0}, 1},
                  "\"data\":\"\",\"shape\":\"0\"");
    expect_tensor(DT_BYTES, strings, sizeof strings - 1, (struct shape){(int64_t[]){2}, 1},
                  "\"data\":\"\\\"a\\\\\\\"\\\",\\\"\\\"\",\"shape\":\"2\"");
    expect_tensor(DT_BYTES, "\1\0\0\0\xff", 5, (struct shape){(int64_t[]){1}, 1},
                  "\"data\":\"\",\"shape\":\"1\"");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trace_record_print_timestamps_match),
        cmocka_unit_test(trace_record_print_tensors_match),
    };
    return cmocka_run_group_tests_name("codec/trace/trace_record", tests, NULL, NULL);
}
