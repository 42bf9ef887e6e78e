/* The Prometheus text format: splits make no difference, and the series found are well-formed. */
#include <stdint.h>
#include <stdlib.h>

#include "codec/prometheus/series.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct str NAMES[] = {STR("a"), STR("vllm:x"), STR("up")};

/* A hash of all series. */
static void found(void *user, const struct series *series) {
    uint64_t *sum = user;
    struct str labels = series->labels;
    struct series_label label;
    while (series_label_next(&labels, &label)) {
        *sum = *sum * 31 + label.name.len * 7 + label.value.len;
        if (!series_label_is(series, label.name, STR(""))) {
            *sum += 1;
        }
    }
    if (labels.len != 0) {
        __builtin_trap(); /* malformed */
    }
    uint64_t bits;
    memcpy(&bits, &series->value, sizeof(bits));
    *sum = *sum * 31 + bits + series->name.len + series->has_time;
}

static uint64_t read_page(struct str page, size_t step) {
    uint64_t sum = 0;
    struct series_reader *reader = calloc(1, sizeof(*reader));
    reader->names = NAMES;
    reader->n_names = sizeof(NAMES) / sizeof(NAMES[0]);
    reader->on_series = found;
    reader->user = &sum;
    series_reader_init(reader);
    while (page.len > 0) {
        size_t n = page.len < step ? page.len : step;
        char *part = malloc(n);
        memcpy(part, page.ptr, n);
        series_reader_feed(reader, str_make(part, n));
        free(part);
        page = str_make(page.ptr + n, page.len - n);
    }
    series_reader_finish(reader);
    sum = sum * 31 + reader->n_malformed + reader->n_lines;
    free(reader);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1 || size > SERIES_LINE_BYTES) {
        return 0;
    }
    struct str page = str_make((const char *)data + 1, size - 1);
    if (read_page(page, page.len + 1) != read_page(page, 1 + data[0])) {
        __builtin_trap();
    }
    return 0;
}
