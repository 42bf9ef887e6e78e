/* Number formatting. */
#include "program/loadgen/report/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/num.h"

const char *bench_text_count(uint64_t value, char out[BENCH_TEXT_BYTES]) {
    char digits[BENCH_TEXT_BYTES];
    unsigned n = num_print_u64(digits, value), at = 0;
    for (unsigned i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0) {
            out[at++] = ',';
        }
        out[at++] = digits[i];
    }
    out[at] = '\0';
    return out;
}

/* With `decimals` decimals; from 1,000 on none, and commas. */
static const char *print_fixed(double value, int decimals, char out[BENCH_TEXT_BYTES]) {
    if (value >= 999.5) {
        return bench_text_count(value < 1e18 ? (uint64_t)llround(value) : UINT64_MAX, out);
    }
    snprintf(out, BENCH_TEXT_BYTES, "%.*f", decimals, value);
    return out;
}

const char *bench_text_number(double value, char out[BENCH_TEXT_BYTES]) {
    int decimals = value >= 99.95 ? 0 : value >= 9.995 ? 1 : value >= 0.9995 ? 2 : 3;
    return print_fixed(value, decimals, out);
}

const char *bench_text_ms(uint64_t ns, char out[BENCH_TEXT_BYTES]) {
    double ms = (double)ns / 1e6;
    int decimals = ms >= 99.95 ? 1 : ms >= 9.995 ? 2 : 3;
    return print_fixed(ms, decimals, out);
}

const char *bench_text_span(uint64_t ns, char out[BENCH_TEXT_BYTES]) {
    static const struct {
        double ns;
        const char *unit;
    } units[] = {{1e9, "s"}, {1e6, "ms"}, {1e3, "µs"}, {1, "ns"}};
    size_t i = 0;
    while (i < 3 && (double)ns < units[i].ns * 0.9995) {
        i++;
    }
    snprintf(out, BENCH_TEXT_BYTES, "%.3g %s", (double)ns / units[i].ns, units[i].unit);
    if ((double)ns >= 1000 * units[i].ns) { /* many seconds: avoid an exponent */
        snprintf(out, BENCH_TEXT_BYTES, "%.0f %s", (double)ns / units[i].ns, units[i].unit);
    }
    return out;
}

const char *bench_text_percent(double share, char out[BENCH_TEXT_BYTES]) {
    snprintf(out, BENCH_TEXT_BYTES, "%.*f\u00a0%%", share < 0.0995 ? 1 : 0, share * 100);
    return out;
}

const char *bench_text_step(const struct bench_step *step, char out[BENCH_TEXT_BYTES]) {
    char number[BENCH_TEXT_BYTES];
    if (step->rate > 0) {
        snprintf(out, BENCH_TEXT_BYTES, "rate %.20s/s", bench_text_number(step->rate, number));
    } else {
        snprintf(out, BENCH_TEXT_BYTES, "concurrency %u", step->concurrency);
    }
    return out;
}
