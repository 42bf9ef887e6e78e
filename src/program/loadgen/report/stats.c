/* Counters of successes, and of failures by reason. */
#include "program/loadgen/report/stats.h"

#include <string.h>

#include "codec/grpc/status.h"
#include "codec/mip/packet.h"
#include "core/base/utf8.h"

void bench_stats_success(struct bench_stats *stats, uint64_t latency_ns) {
    bench_histogram_add(&stats->latency, latency_ns);
}

/* Failures with the same codes have the same reason, even if their texts differ. */
static struct bench_failure *find_failure(struct bench_stats *stats,
                                          const struct bench_failure *row) {
    for (size_t i = 0; i < stats->n_failures; i++) {
        struct bench_failure *failure = &stats->failures[i];
        if (failure->status == row->status && failure->http_status == row->http_status &&
            failure->mip_error == row->mip_error && failure->grpc_code == row->grpc_code) {
            return failure;
        }
    }
    return NULL;
}

/* When the table is full, further reasons are counted in its last row. */
static void count(struct bench_stats *stats, const struct bench_failure *row) {
    struct bench_failure *failure = find_failure(stats, row);
    if (!failure && stats->n_failures < BENCH_FAILURE_KINDS) {
        failure = &stats->failures[stats->n_failures++];
        *failure = *row;
        failure->count = 0;
    }
    if (!failure) {
        failure = &stats->failures[BENCH_FAILURE_KINDS - 1];
    }
    failure->count += row->count;
}

void bench_stats_failure(struct bench_stats *stats, const struct bench_error *failed,
                         bool measured) {
    bench_counter_add(&stats->n_refused, 1);
    if (!measured) {
        return;
    }
    const char *text = failed->err.text;
    struct bench_failure row = {.status = failed->err.status,
                                .http_status = failed->http_status,
                                .mip_error = failed->mip_error,
                                .grpc_code = failed->grpc_code,
                                .count = 1};
    stats->n_failed++;
    if (find_failure(stats, &row) == NULL) {
        size_t n = utf8_valid_prefix(text, strnlen(text, sizeof(row.first) - 1));
        memcpy(row.first, text, n); /* cut at a character boundary */
    }
    count(stats, &row);
}

void bench_stats_merge(struct bench_stats *into, const struct bench_stats *from) {
    bench_histogram_merge(&into->latency, &from->latency);
    bench_histogram_merge(&into->lag, &from->lag);
    into->n_failed += from->n_failed;
    into->n_unsent += from->n_unsent;
    into->n_abandoned += from->n_abandoned;
    into->n_in_window += from->n_in_window;
    into->n_bytes_in_window += from->n_bytes_in_window;
    into->cpu_ns += from->cpu_ns;
    into->last_ns = from->last_ns > into->last_ns ? from->last_ns : into->last_ns;
    bench_counter_add(&into->n_answered, bench_counter_get(&from->n_answered));
    bench_counter_add(&into->n_refused, bench_counter_get(&from->n_refused));
    for (size_t i = 0; i < from->n_failures; i++) {
        count(into, &from->failures[i]);
    }
}

void bench_failure_print(struct buf *out, const struct bench_failure *failure) {
    static const struct {
        enum status status;
        const char *text;
    } rows[] = {
        {ST_IO, "connection failed"},
        {ST_DEADLINE_EXCEEDED, "timeout"},
        {ST_BAD_ANSWER, "broken answer"},
    };
    if (failure->status == ST_REFUSED && failure->http_status > 0) {
        buf_printf(out, "HTTP %d", (int)failure->http_status);
        return;
    }
    if (failure->status == ST_REFUSED && failure->grpc_code > 0) {
        buf_printf(out, "gRPC %s", grpc_code_name(failure->grpc_code));
        return;
    }
    if (failure->status == ST_REFUSED && failure->mip_error >= 0) {
        buf_printf(out, "MIP %s", mip_error_name((unsigned)failure->mip_error));
        return;
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        if (rows[i].status == failure->status) {
            buf_add_str(out, str_of(rows[i].text));
            return;
        }
    }
    buf_add_str(out, str_of(status_text(failure->status)));
}
