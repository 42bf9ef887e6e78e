/* The progress line. It overwrites itself; text beyond the window's width is cut, because a
 * wrapped line can't be overwritten. */
#include "program/loadgen/report/progress.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/plural.h"
#include "core/must/must.h"
#include "program/loadgen/report/text.h"
#include "program/options/help.h"

enum { DEFAULT_COLUMNS = 80 };

struct bench_progress {
    FILE *file;
    struct bench_live_stats before; /* of the same step, or zeroed */
};

struct bench_progress *bench_progress_new(FILE *file) {
    const char *term = getenv("TERM");
    if (!isatty(fileno(file)) || (term && strcmp(term, "dumb") == 0)) {
        return NULL;
    }
    struct bench_progress *progress = must_calloc(1, sizeof(*progress), "the progress");
    progress->file = file;
    return progress;
}

void bench_progress_free(struct bench_progress *progress) {
    bench_progress_clear(progress);
    free(progress);
}

void bench_progress_clear(struct bench_progress *progress) {
    if (progress) {
        fputs("\r\033[K", progress->file);
        fflush(progress->file);
    }
}

void bench_progress_show(struct bench_progress *progress, const struct bench_live_stats *live) {
    if (!progress) {
        return;
    }
    if (progress->before.index != live->index || progress->before.from_ns != live->from_ns) {
        memset(&progress->before, 0, sizeof(progress->before));
        progress->before.now_ns = live->from_ns;
    }
    struct arena *arena = must_arena_new("the progress");
    struct buf line;
    unsigned columns = terminal_columns(fileno(progress->file), DEFAULT_COLUMNS);
    buf_init(&line, arena, 256);
    bench_progress_print(&line, live, &progress->before, columns);
    fprintf(progress->file, "\r%.*s\033[K", STR_ARG(buf_str(&line)));
    fflush(progress->file);
    arena_free(arena);
    progress->before = *live;
}

/* ---- the text -------------------------------------------------------------------------------- */

/* Cuts the text to `columns` characters, each one column wide. */
static void cut_columns(struct buf *text, unsigned columns) {
    size_t n = 0;
    for (size_t i = 0; i < text->len; i++) {
        n += ((unsigned char)text->data[i] & 0xc0) != 0x80;
        if (n > columns) {
            text->len = i;
            return;
        }
    }
}

static void print_left(struct buf *out, const struct bench_live_stats *live) {
    char text[BENCH_TEXT_BYTES];
    if (live->now_ns >= live->until_ns) {
        buf_add_str(out, STR("waiting for the last answers"));
    } else if (live->now_ns < live->from_ns) {
        buf_printf(out, "warming up, %.0f s left", (double)(live->from_ns - live->now_ns) / 1e9);
    } else if (live->until_ns == UINT64_MAX) {
        buf_printf(out, "%s request%s left",
                   bench_text_count(live->n_left > 0 ? (uint64_t)live->n_left : 0, text),
                   plural_s((uint64_t)live->n_left));
    } else {
        buf_printf(out, "%.0f s left", (double)(live->until_ns - live->now_ns) / 1e9);
    }
}

void bench_progress_print(struct buf *out, const struct bench_live_stats *live,
                          const struct bench_live_stats *before, unsigned columns) {
    char text[BENCH_TEXT_BYTES], ms[2][BENCH_TEXT_BYTES];
    uint64_t span = live->now_ns > before->now_ns ? live->now_ns - before->now_ns : 0;
    double n = (double)(live->n_answered - before->n_answered);
    buf_printf(out, "%zu of %zu  %s  ", live->index + 1, live->n_steps,
               bench_text_step(live->step, text));
    buf_printf(out, "%s/s", bench_text_number(span > 0 ? n * 1e9 / (double)span : 0, text));
    struct bench_histogram *recent = arena_alloc(out->arena, sizeof(*recent));
    if (recent) {
        memset(recent, 0, sizeof(*recent));
        bench_histogram_merge_counts(recent, &live->latency);
        bench_histogram_subtract_counts(recent, &before->latency);
        if (bench_histogram_total(recent) > 0) {
            buf_printf(out, "  p50 %s  p99 %s ms",
                       bench_text_ms(bench_histogram_quantile(recent, 0.5), ms[0]),
                       bench_text_ms(bench_histogram_quantile(recent, 0.99), ms[1]));
        }
    }
    buf_printf(out, "  %s error%s  ", bench_text_count(live->n_failed, text),
               plural_s(live->n_failed));
    print_left(out, live);
    cut_columns(out, columns);
}
