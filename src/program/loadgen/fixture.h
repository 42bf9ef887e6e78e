/* For the report tests, after <cmocka.h>: results with known numbers, and checks of the printed
 * text. */
#ifndef SLUICE_PROGRAM_LOADGEN_FIXTURE_H
#define SLUICE_PROGRAM_LOADGEN_FIXTURE_H

#include <stdint.h>
#include <string.h>

#include "program/loadgen/report/result.h"

struct bench_fixture {
    struct arena *arena;
    struct bench_settings settings;
    struct bench_call call;
    struct bench_result result;
    char *argv[32];
};

/* A result without steps. `line`: the arguments of `sluice bench`, separated by '|'. */
static inline struct bench_fixture *fixture_new(const char *line) {
    struct arena *arena = arena_new(NULL, 0);
    struct bench_fixture *fixture = arena_calloc(arena, 1, sizeof(*fixture));
    static const int64_t dims[] = {2, 28, 28};
    struct tensor *input = arena_calloc(arena, 1, sizeof(*input));
    char name[] = "bench";
    int argc = 1;
    fixture->arena = arena;
    fixture->argv[0] = (char *)(uintptr_t)arena_dup(arena, str_of(name)).ptr;
    for (struct str rest = str_of(line); rest.ptr && argc < 31;) {
        fixture->argv[argc++] = (char *)(uintptr_t)arena_dup(arena, str_cut(&rest, '|')).ptr;
    }
    if (bench_settings_read(argc, fixture->argv, arena, &fixture->settings) != -1) {
        arena_free(arena);
        return NULL;
    }
    *input = (struct tensor){
        .name = STR("image"), .datatype = DT_FP32, .shape = {dims, 3}, .n_bytes = 6272};
    fixture->call =
        (struct bench_call){.protocol = bench_protocol_find(fixture->settings.options.url),
                            .url = fixture->settings.options.url,
                            .ping = fixture->settings.options.ping,
                            .batch = fixture->settings.options.batch,
                            .n_bytes = 6500,
                            .inputs = input,
                            .n_inputs = fixture->settings.options.ping ? 0 : 1,
                            .server = "triton",
                            .server_version = "2.40.0",
                            .model_version = "3",
                            .platform = "onnxruntime_onnx"};
    fixture->result =
        (struct bench_result){.settings = &fixture->settings,
                              .call = &fixture->call,
                              .started_s = 1769860800, /* 2026-01-31 12:00 */
                              .first_ns = 2500000,
                              .n_cpus = 8,
                              .steps = arena_calloc(arena, BENCH_MAX_STEPS, sizeof(void *))};
    return fixture;
}

static inline void fixture_free(struct bench_fixture *fixture) {
    arena_free(fixture->arena);
}

/* Adds the next step of the plan: measured for 2 s, `n` answers with latencies of 1 to n times
 * `us` microseconds, threads idle. */
static inline struct bench_step_result *fixture_add(struct bench_fixture *fixture, uint64_t n,
                                                    uint64_t us) {
    struct bench_step_result *step = arena_calloc(fixture->arena, 1, sizeof(*step));
    step->step = fixture->settings.plan.steps[fixture->result.n_steps];
    step->n_threads = 1;
    step->window_ns = 2000000000;
    for (uint64_t i = 1; i <= n; i++) {
        bench_stats_success(&step->stats, i * us * 1000);
    }
    step->stats.n_in_window = n;
    step->stats.n_bytes_in_window = n * 7000;
    for (uint64_t i = 1; i <= 20; i++) {
        step->samples[step->n_samples++] = (struct bench_sample){i * 100000000, n * i / 20, 0};
    }
    fixture->result.steps[fixture->result.n_steps++] = step;
    return step;
}

static inline void fixture_fail(struct bench_step_result *step, enum status status,
                                int32_t http_status, const char *text, unsigned times) {
    struct bench_error failed = {.http_status = http_status, .mip_error = -1};
    error_set(&failed.err, status, "%s", text);
    for (unsigned i = 0; i < times; i++) {
        bench_stats_failure(&step->stats, &failed, true);
    }
}

/* ---- checks of printed text ------------------------------------------------------------------ */

typedef void fixture_printer(struct buf *out, const struct bench_result *result);

static inline struct str fixture_print(struct bench_fixture *fixture, fixture_printer *printer) {
    struct buf out;
    buf_init(&out, fixture->arena, 0);
    printer(&out, &fixture->result);
    assert_false(out.failed);
    buf_add_char(&out, '\0'); /* for strstr */
    return str_make(out.data, out.len - 1);
}

static inline void fixture_says(struct str text, const char *what) {
    if (!strstr(text.ptr, what)) {
        fail_msg("no \"%s\" in:\n%s", what, text.ptr);
    }
}

static inline void fixture_says_not(struct str text, const char *what) {
    if (strstr(text.ptr, what)) {
        fail_msg("\"%s\" is in:\n%s", what, text.ptr);
    }
}

/* Three steps, the last with failures. */
static inline struct bench_fixture *fixture_sweep(void) {
    struct bench_fixture *fixture = fixture_new("http://h:1|digits|-c|1,4,16|--batch|2");
    fixture_add(fixture, 1000, 2);
    fixture_add(fixture, 3000, 2);
    struct bench_step_result *last = fixture_add(fixture, 2990, 9);
    fixture_fail(last, ST_REFUSED, 503, "queue <full> & \"closed\"", 1200);
    fixture_fail(last, ST_DEADLINE_EXCEEDED, 0, "timed out", 1);
    return fixture;
}

/* Two rates; the server did not keep up with the second. */
static inline struct bench_fixture *fixture_rates(void) {
    struct bench_fixture *fixture = fixture_new("tcp://h:1|--ping|-r|500,2000|--arrival|poisson");
    fixture_add(fixture, 1000, 2);
    struct bench_step_result *last = fixture_add(fixture, 3000, 2);
    last->stats.n_unsent = 1000;
    last->stats.cpu_ns = 1900000000;
    bench_histogram_add(&last->stats.lag, 20000000);
    return fixture;
}

#endif
