/* A model that prints in each request must not fill the log: after LINES_BURST lines at once there
 * are LINES_PER_S of them in a second, and a line that says how many were left out. */
#include "python/lines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"

void lines_init(struct lines *lines, const sluice_host *host, const char *model) {
    *lines = (struct lines){.host = host, .model = model, .allowed = LINES_BURST};
    lines->refilled_ns = host->now_ns();
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Returns: the bytes of the character at `at`; 0: it is not valid. */
static size_t character_bytes(const unsigned char *at) {
    size_t n = *at < 0x80                  ? 1
               : *at >= 0xC2 && *at < 0xE0 ? 2
               : *at >= 0xE0 && *at < 0xF0 ? 3
               : *at >= 0xF0 && *at < 0xF5 ? 4
                                           : 0;
    for (size_t i = 1; i < n; i++) {
        if ((at[i] & 0xC0) != 0x80) {
            return 0;
        }
    }
    int overlong = (*at == 0xE0 && at[1] < 0xA0) || (*at == 0xF0 && at[1] < 0x90);
    int beyond = (*at == 0xED && at[1] > 0x9F) || (*at == 0xF4 && at[1] > 0x8F);
    return overlong || beyond ? 0 : n;
}

static size_t skip_nothing(const char *text) {
    (void)text;
    return 0;
}

void lines_copy_text(const char *text, size_t text_bytes, char *out, size_t n_bytes) {
    char copy[LINES_BYTES * 2];
    size_t n = text_bytes < sizeof(copy) - 1 ? text_bytes : sizeof(copy) - 1;
    for (size_t i = 0; i < n; i++) {
        copy[i] = text[i] == '\0' ? ' ' : text[i];
    }
    copy[n] = '\0';
    for (size_t i = 0, step; copy[i]; i += step) {
        step = character_bytes((const unsigned char *)copy + i);
        if (step == 0) {
            copy[i] = '?';
            step = 1;
        }
    }
    text_one_line(copy, skip_nothing, out, n_bytes);
}

/* ---- limit ----------------------------------------------------------------------------------- */

static int may_log(struct lines *lines) {
    uint64_t now_ns = lines->host->now_ns();
    lines->allowed += (double)(now_ns - lines->refilled_ns) / 1e9 * LINES_PER_S;
    lines->refilled_ns = now_ns;
    if (lines->allowed > LINES_BURST) {
        lines->allowed = LINES_BURST;
    }
    if (lines->allowed < 1) {
        lines->n_left_out++;
        return 0;
    }
    lines->allowed -= 1;
    if (lines->n_left_out > 0) {
        char text[80];
        snprintf(text, sizeof(text), "%llu lines of the model's were left out: it writes too many",
                 (unsigned long long)lines->n_left_out);
        lines->n_left_out = 0;
        lines->host->log(SLUICE_LOG_WARNING, lines->model, text);
    }
    return 1;
}

void lines_log(struct lines *lines, sluice_log_level level, const char *text, size_t n_bytes) {
    if (may_log(lines)) {
        char line[LINES_BYTES];
        lines_copy_text(text, n_bytes, line, sizeof(line));
        lines->host->log(level, lines->model, line);
    }
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void end_line(struct lines *lines) {
    if (lines->n_bytes > 0) {
        char *kept = lines->last[lines->n_last++ % LINES_LAST];
        lines_copy_text(lines->line, lines->n_bytes, kept, LINES_BYTES);
        if (may_log(lines)) {
            lines->host->log(SLUICE_LOG_INFO, lines->model, kept);
        }
    }
    lines->n_bytes = 0;
}

void lines_add(struct lines *lines, const char *bytes, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes; i++) {
        if (bytes[i] == '\n') {
            end_line(lines);
        } else if (lines->n_bytes < sizeof(lines->line)) {
            lines->line[lines->n_bytes++] = bytes[i];
        }
    }
}

void lines_flush(struct lines *lines) {
    end_line(lines);
}

void lines_print_last(const struct lines *lines, char *out, size_t n_bytes) {
    size_t first = lines->n_last > LINES_LAST ? lines->n_last - LINES_LAST : 0, len = 0;
    out[0] = '\0';
    for (size_t i = first; i < lines->n_last && len < n_bytes; i++) {
        int wrote = snprintf(out + len, n_bytes - len, "%s%s", len > 0 ? " | " : "",
                             lines->last[i % LINES_LAST]);
        len += wrote > 0 ? (size_t)wrote : 0;
    }
}
