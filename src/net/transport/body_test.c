/* Bodies: contiguous and aligned for every split of the input; exact limits; budget reserved as
 * bytes arrive and fully returned. */
#include "net/transport/body.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "codec/http1/content_coding.h"
#include "core/base/metric/metric.h"

enum { TEXT_BYTES = 3 << 20 };

struct bench {
    struct arena *arena;
    struct body_pool pool;
    struct net_budget budget;
    struct body_allocator means;
    struct body body;
    struct error err;
};

static void bench_init(struct bench *bench, uint64_t budget) {
    *bench = (struct bench){.arena = arena_new(NULL, 0), .budget = {.body_memory = budget}};
    body_pool_init(&bench->pool, 64 << 20);
    bench->means =
        (struct body_allocator){bench->arena, &bench->pool, &bench->budget, NET_BODY_HTTP};
}

static void bench_fini(struct bench *bench) {
    body_fini(&bench->body, 0);
    assert_true(bench->budget.n_body_bytes == 0);
    assert_int_equal(metric_read(METRIC_BODY_BYTES_IN_FLIGHT), 0);
    body_pool_fini(&bench->pool);
    arena_free(bench->arena);
}

static char byte_at(size_t i) {
    return (char)((i * 2654435761u) >> 13);
}

static char *text_new(size_t n) {
    char *text = malloc(n);
    assert_non_null(text);
    for (size_t i = 0; i < n; i++) {
        text[i] = byte_at(i);
    }
    return text;
}

static void check_text(const struct body *body, const char *text, size_t n) {
    assert_int_equal(body->len, n);
    assert_memory_equal(body->data, text, n);
    assert_int_equal(((uintptr_t)body->data + body->align_at) % 64, 0);
}

/* Adds in pieces. Returns: the first error. */
static enum status add(struct bench *bench, const char *text, size_t n, size_t piece) {
    enum status st = ST_OK;
    for (size_t at = 0; st == ST_OK && at < n; at += piece) {
        size_t len = n - at < piece ? n - at : piece;
        st = body_add(&bench->body, str_make(text + at, len), &bench->err);
    }
    return st == ST_OK ? body_finish(&bench->body, &bench->err) : st;
}

static const size_t SIZES[] = {1, 100, 2047, 2048, 2049, 16384, 16385, 100000, TEXT_BYTES};
static const size_t ALIGNS[] = {0, 1, 63, 64, 157, 100000};
enum { N_SIZES = sizeof(SIZES) / sizeof(SIZES[0]), N_ALIGNS = sizeof(ALIGNS) / sizeof(ALIGNS[0]) };
static const size_t N_BOTH = (size_t)N_SIZES * N_ALIGNS;

static void body_add_copies_all_sizes(void **state) {
    (void)state;
    char *text = text_new(TEXT_BYTES);
    for (size_t i = 0; i < 2 * N_BOTH; i++) {
        size_t size = SIZES[i / 2 % N_SIZES];
        struct bench bench;
        bench_init(&bench, 16 << 20);
        struct body_plan plan = {.length = i % 2 ? size : UINT64_MAX,
                                 .max_bytes = size,
                                 .align_at = ALIGNS[i / 2 / N_SIZES]};
        assert_int_equal(body_init(&bench.body, &bench.means, &plan, &bench.err), ST_OK);
        assert_int_equal(add(&bench, text, size, size < 3000 ? 1 : 9973), ST_OK);
        check_text(&bench.body, text, size);
        bench_fini(&bench);
    }
    free(text);
}

static void body_advance_in_place_all_sizes(void **state) {
    (void)state;
    char *text = text_new(TEXT_BYTES);
    for (size_t i = 0; i < N_BOTH; i++) {
        size_t size = SIZES[i % N_SIZES], first = size / 10;
        struct bench bench;
        bench_init(&bench, 16 << 20);
        struct body_plan plan = {
            .length = size, .max_bytes = TEXT_BYTES, .align_at = ALIGNS[i / N_SIZES]};
        assert_int_equal(body_init(&bench.body, &bench.means, &plan, &bench.err), ST_OK);
        assert_true(bench.body.in_place);
        const char *data = bench.body.data;
        assert_int_equal(body_add(&bench.body, str_make(text, first), &bench.err), ST_OK);
        int64_t copied = metric_read(METRIC_COPIED_BYTES_TOTAL);
        while (bench.body.left > 0) {
            size_t room;
            char *at = body_read_buffer(&bench.body, &room);
            assert_true(room > 0 && room <= bench.body.left);
            memcpy(at, text + bench.body.len, room); /* as read() would */
            assert_int_equal(body_advance(&bench.body, room, &bench.err), ST_OK);
        }
        assert_int_equal(metric_read(METRIC_COPIED_BYTES_TOTAL), copied);
        assert_ptr_equal(bench.body.data, data);
        check_text(&bench.body, text, size);
        bench_fini(&bench);
    }
    free(text);
}

static void body_over_limit_by_one_byte_is_too_large(void **state) {
    (void)state;
    char *text = text_new(TEXT_BYTES);
    for (size_t i = 0; i < N_SIZES; i++) {
        struct bench bench;
        bench_init(&bench, 16 << 20);
        struct body_plan plan = {.length = SIZES[i], .max_bytes = SIZES[i] - 1};
        assert_int_equal(body_init(&bench.body, &bench.means, &plan, &bench.err),
                         ST_BODY_TOO_LARGE);
        body_fini(&bench.body, 0);
        plan.length = UINT64_MAX;
        assert_int_equal(body_init(&bench.body, &bench.means, &plan, &bench.err), ST_OK);
        assert_int_equal(body_check_size(&bench.body, SIZES[i] - 1, &bench.err), ST_OK);
        assert_int_equal(body_check_size(&bench.body, SIZES[i], &bench.err), ST_BODY_TOO_LARGE);
        assert_int_equal(body_check_size(&bench.body, UINT64_MAX, &bench.err), ST_BODY_TOO_LARGE);
        assert_int_equal(add(&bench, text, SIZES[i], 4096), ST_BODY_TOO_LARGE);
        assert_int_equal(bench.err.status, ST_BODY_TOO_LARGE);
        bench_fini(&bench);
    }
    free(text);
}

static size_t compress_zeros(enum http_coding coding, size_t n, char *out, size_t room) {
    char *zeros = calloc(1, n + 1);
    assert_non_null(zeros);
    struct deflate *deflate = deflate_new(coding, 9);
    struct str in = str_make(zeros, n);
    size_t n_out;
    assert_true(deflate_step(deflate, &in, true, out, room, &n_out));
    deflate_free(deflate);
    free(zeros);
    return n_out;
}

/* A small limit ends a body whose compressed bytes are far below it, before it holds more. */
static void body_compressed_stops_at_plan_limit(void **state) {
    (void)state;
    enum { LIMIT = 65536, INFLATED = 32 << 20, PACKED = 1 << 16 };
    char *packed = malloc(PACKED);
    assert_non_null(packed);
    size_t n = compress_zeros(HTTP_GZIP, INFLATED, packed, PACKED);
    struct bench bench;
    bench_init(&bench, 64 << 20);
    struct body_plan plan = {
        .length = n, .max_bytes = LIMIT, .setting = "--max-json-size", .coding = HTTP_GZIP};
    assert_int_equal(body_init(&bench.body, &bench.means, &plan, &bench.err), ST_OK);
    assert_int_equal(add(&bench, packed, n, 1000), ST_BODY_TOO_LARGE);
    assert_non_null(strstr(bench.err.text, "65536"));
    assert_non_null(strstr(bench.err.text, "--max-json-size"));
    assert_true(bench.body.len <= LIMIT && bench.budget.n_body_bytes <= LIMIT);
    assert_true(bench.body.block_bytes <= 2 * (size_t)LIMIT);
    bench_fini(&bench);
    free(packed);
}

static void body_compressed_is_inflated_up_to_limit(void **state) {
    (void)state;
    char packed[16384];
    char *zeros = calloc(1, TEXT_BYTES);
    assert_non_null(zeros);
    for (size_t i = 0; i / 2 < N_SIZES; i++) {
        size_t size = SIZES[i / 2];
        enum http_coding coding = i % 2 ? HTTP_GZIP : HTTP_DEFLATE;
        size_t n = compress_zeros(coding, size, packed, sizeof(packed));
        for (size_t over = 0; over < 2; over++) {
            struct bench bench;
            bench_init(&bench, 16 << 20);
            struct body_plan plan = {.length = size > n ? n : UINT64_MAX,
                                     .max_bytes = size - over,
                                     .align_at = 157,
                                     .coding = coding};
            assert_int_equal(body_init(&bench.body, &bench.means, &plan, &bench.err), ST_OK);
            assert_false(bench.body.in_place);
            enum status st = add(&bench, packed, n, 7);
            assert_int_equal(st, over ? ST_BODY_TOO_LARGE : ST_OK);
            if (!over) {
                check_text(&bench.body, zeros, size);
            }
            bench_fini(&bench);
        }
    }
    free(zeros);
}

static void body_zip_bomb_stops_at_limit(void **state) {
    (void)state;
    static char packed[1 << 17];
    size_t n = compress_zeros(HTTP_GZIP, 100 << 20, packed, sizeof(packed));
    struct bench bench;
    bench_init(&bench, 16 << 20);
    struct body_plan plan = {.length = n, .max_bytes = 1 << 20, .coding = HTTP_GZIP};
    assert_int_equal(body_init(&bench.body, &bench.means, &plan, &bench.err), ST_OK);
    assert_int_equal(add(&bench, packed, n, n), ST_BODY_TOO_LARGE);
    assert_true(bench.budget.n_body_bytes <= 1 << 20);
    assert_true(bench.body.cap <= 2 << 20);
    bench_fini(&bench);
}

static void body_truncated_compression_is_bad_encoding(void **state) {
    (void)state;
    char packed[64];
    size_t n = compress_zeros(HTTP_DEFLATE, 0, packed, sizeof(packed));
    struct bench bench;
    bench_init(&bench, 16 << 20);
    struct body_plan plan = {.length = n, .max_bytes = 100, .coding = HTTP_DEFLATE};
    assert_int_equal(body_init(&bench.body, &bench.means, &plan, &bench.err), ST_OK);
    assert_int_equal(add(&bench, packed, n - 1, 1), ST_BAD_ENCODING);
    body_fini(&bench.body, 0);
    assert_int_equal(body_init(&bench.body, &bench.means, &plan, &bench.err), ST_OK);
    assert_int_equal(add(&bench, packed, n, 1), ST_OK);
    assert_int_equal(bench.body.len, 0);
    bench_fini(&bench);
}

static void body_reserves_budget_as_bytes_arrive(void **state) {
    (void)state;
    char *text = text_new(TEXT_BYTES);
    struct bench bench;
    bench_init(&bench, 1 << 20);
    struct body_plan plan = {.length = TEXT_BYTES, .max_bytes = TEXT_BYTES};
    assert_int_equal(body_init(&bench.body, &bench.means, &plan, &bench.err), ST_OK);
    assert_true(bench.budget.n_body_bytes == 0);
    assert_int_equal(body_add(&bench.body, str_make(text, 1000), &bench.err), ST_OK);
    assert_true(bench.budget.n_body_bytes == 0);
    assert_int_equal(body_add(&bench.body, str_make(text, 2000), &bench.err), ST_OK);
    assert_true(bench.budget.n_body_bytes >= 3000 - 2048 && bench.budget.n_body_bytes <= 1 << 17);
    enum status st = add(&bench, text, TEXT_BYTES - 3000, 10000);
    assert_int_equal(st, ST_OVERLOADED);
    assert_true(bench.body.len > (1 << 20) - 10000); /* up to the last bytes of the budget */
    assert_true(bench.budget.n_body_bytes <= 1 << 20);

    struct body second; /* a small one is not accounted */
    plan = (struct body_plan){.length = 2000, .max_bytes = TEXT_BYTES};
    assert_int_equal(body_init(&second, &bench.means, &plan, &bench.err), ST_OK);
    assert_int_equal(body_add(&second, str_make(text, 2000), &bench.err), ST_OK);
    body_fini(&second, 0);
    bench_fini(&bench);
    free(text);
}

/* Steps of a byte would make each byte of a body a reservation. */
static void body_at_end_of_budget_reserves_in_steps(void **state) {
    (void)state;
    struct bench bench;
    char data[1000] = {0};
    bench_init(&bench, 20000);
    struct body_plan plan = {.length = UINT64_MAX, .max_bytes = 1 << 22};
    assert_int_equal(body_init(&bench.body, &bench.means, &plan, &bench.err), ST_OK);
    size_t n_reservations = 0, n_reserved = bench.body.n_reserved;
    while (body_add(&bench.body, str_make(data, sizeof(data)), &bench.err) == ST_OK) {
        assert_true(bench.body.n_reserved >= bench.body.len);
        n_reservations += bench.body.n_reserved != n_reserved;
        n_reserved = bench.body.n_reserved;
    }
    assert_int_equal(bench.budget.n_body_bytes, 4 * 4096);
    assert_int_equal(n_reservations, 4);
    assert_true(bench.body.len > 16000);
    bench_fini(&bench);
}

static void body_init_huge_length_returns_no_memory(void **state) {
    (void)state;
    struct bench bench;
    bench_init(&bench, UINT64_MAX);
    struct body_plan plan = {.length = UINT64_MAX - 1, .max_bytes = UINT64_MAX};
    assert_int_equal(body_init(&bench.body, &bench.means, &plan, &bench.err), ST_NO_MEMORY);
    bench_fini(&bench);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(body_add_copies_all_sizes),
        cmocka_unit_test(body_advance_in_place_all_sizes),
        cmocka_unit_test(body_over_limit_by_one_byte_is_too_large),
        cmocka_unit_test(body_compressed_is_inflated_up_to_limit),
        cmocka_unit_test(body_compressed_stops_at_plan_limit),
        cmocka_unit_test(body_zip_bomb_stops_at_limit),
        cmocka_unit_test(body_truncated_compression_is_bad_encoding),
        cmocka_unit_test(body_reserves_budget_as_bytes_arrive),
        cmocka_unit_test(body_at_end_of_budget_reserves_in_steps),
        cmocka_unit_test(body_init_huge_length_returns_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
