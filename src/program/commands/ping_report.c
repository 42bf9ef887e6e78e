/* Counts and prints pings. Mean and deviation use Welford's method, which needs no list of times
 * and keeps its precision for long times that differ little. */
#include "program/commands/ping_report.h"

#include <inttypes.h>
#include <math.h>

#include "core/base/json_writer.h"

enum { MS_DECIMALS = 3 };

static double ns_to_ms(double ns) {
    return ns / 1e6;
}

void ping_report_begin(const struct ping_report *report, const char *what, bool reconnect,
                       struct buf *out) {
    if (!report->json) {
        buf_printf(out, "PING %s: %s, %s\n", report->url, what,
                   reconnect ? "a new connection each time" : "over one connection");
    }
}

static void count_answer(struct ping_report *report, uint64_t time_ns) {
    report->n_answered++;
    if (report->n_answered == 1 || time_ns < report->min_ns) {
        report->min_ns = time_ns;
    }
    if (time_ns > report->max_ns) {
        report->max_ns = time_ns;
    }
    double off = (double)time_ns - report->mean_ns;
    report->mean_ns += off / (double)report->n_answered;
    report->squares += off * ((double)time_ns - report->mean_ns);
}

void ping_report_answer(struct ping_report *report, uint64_t time_ns, struct buf *out) {
    report->n_sent++;
    count_answer(report, time_ns);
    double ms = ns_to_ms((double)time_ns);
    if (report->json) {
        struct json_writer json = {.out = out};
        json_write_open(&json, JSON_ELEMENT, '{');
        json_write_u64(&json, "seq", report->n_sent);
        json_write_decimals(&json, "time_ms", ms, MS_DECIMALS);
        json_write_close(&json, '}');
        buf_add_char(out, '\n');
    } else {
        buf_printf(out, "seq=%" PRIu64 " time=%.*f ms\n", report->n_sent, MS_DECIMALS, ms);
    }
}

void ping_report_loss(struct ping_report *report, const char *why, struct buf *out) {
    report->n_sent++;
    if (report->json) {
        struct json_writer json = {.out = out};
        json_write_open(&json, JSON_ELEMENT, '{');
        json_write_u64(&json, "seq", report->n_sent);
        json_write_string(&json, "error", str_of(why));
        json_write_close(&json, '}');
        buf_add_char(out, '\n');
    } else {
        buf_printf(out, "seq=%" PRIu64 " lost: %s\n", report->n_sent, why);
    }
}

static double deviation_ns(const struct ping_report *report) {
    return sqrt(report->squares / (double)report->n_answered);
}

static void end_json(const struct ping_report *report, struct buf *out) {
    struct json_writer json = {.out = out};
    json_write_open(&json, JSON_ELEMENT, '{');
    json_write_string(&json, "url", str_of(report->url));
    json_write_u64(&json, "sent", report->n_sent);
    json_write_u64(&json, "answered", report->n_answered);
    json_write_u64(&json, "lost", report->n_sent - report->n_answered);
    if (report->n_answered > 0) {
        double min_ms = ns_to_ms((double)report->min_ns), max_ms = ns_to_ms((double)report->max_ns);
        json_write_decimals(&json, "min_ms", min_ms, MS_DECIMALS);
        json_write_decimals(&json, "avg_ms", ns_to_ms(report->mean_ns), MS_DECIMALS);
        json_write_decimals(&json, "max_ms", max_ms, MS_DECIMALS);
        json_write_decimals(&json, "stddev_ms", ns_to_ms(deviation_ns(report)), MS_DECIMALS);
    }
    json_write_close(&json, '}');
    buf_add_char(out, '\n');
}

void ping_report_end(const struct ping_report *report, uint64_t took_ns, struct buf *out) {
    uint64_t lost = report->n_sent - report->n_answered;
    if (report->json) {
        end_json(report, out);
        return;
    }
    buf_printf(out, "--- %s ping statistics ---\n", report->url);
    buf_printf(out, "%" PRIu64 " sent, %" PRIu64 " answered, %" PRIu64 " lost", report->n_sent,
               report->n_answered, lost);
    if (report->n_sent > 0) {
        buf_printf(out, " (%.3g%%)", 100.0 * (double)lost / (double)report->n_sent);
    }
    buf_printf(out, ", time %.0f ms\n", ns_to_ms((double)took_ns));
    if (report->n_answered > 0) {
        buf_printf(out, "min/avg/max/stddev = %.3f/%.3f/%.3f/%.3f ms\n",
                   ns_to_ms((double)report->min_ns), ns_to_ms(report->mean_ns),
                   ns_to_ms((double)report->max_ns), ns_to_ms(deviation_ns(report)));
    }
}
