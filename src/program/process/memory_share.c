/* Shares of the memory that this process may use, as bytes and as text. */
#include "program/process/memory_share.h"

#include <inttypes.h>
#include <stdio.h>

#include "core/base/log.h"

enum { SIZE_BYTES = 32 };

void memory_share_resolve(struct option_memory *memory, const struct memory_limit *limit) {
    if (memory->percent == 0) {
        return;
    }
    uint64_t hundredth = limit->n_bytes / 100, rest = limit->n_bytes % 100;
    uint64_t n_bytes = hundredth * memory->percent + rest * memory->percent / 100;
    memory->n_bytes = n_bytes > 0 ? n_bytes : 1;
}

void memory_share_cap(struct option_memory *memory, const struct option_memory *most) {
    if (memory->percent > 0 && most->n_bytes > 0 && memory->n_bytes > most->n_bytes) {
        *memory = (struct option_memory){.n_bytes = most->n_bytes};
    }
}

/* Prints in the largest unit that gives at least 1, rounded to one decimal: "1.5 GiB". */
static const char *print_size(char out[SIZE_BYTES], uint64_t n_bytes) {
    static const char *const UNITS[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    uint64_t scale = 1;
    while (unit + 1 < sizeof(UNITS) / sizeof(*UNITS) && n_bytes / scale >= 1024) {
        scale *= 1024;
        unit++;
    }
    uint64_t whole = n_bytes / scale, tenth = (n_bytes % scale * 10 + scale / 2) / scale;
    if (tenth == 10) {
        whole++;
        tenth = 0;
    }
    if (tenth > 0) {
        snprintf(out, SIZE_BYTES, "%" PRIu64 ".%" PRIu64 " %s", whole, tenth, UNITS[unit]);
    } else {
        snprintf(out, SIZE_BYTES, "%" PRIu64 " %s", whole, UNITS[unit]);
    }
    return out;
}

const char *memory_share_print(char out[MEMORY_SHARE_TEXT_BYTES],
                               const struct option_memory *memory,
                               const struct memory_limit *limit) {
    char size[SIZE_BYTES], whole[SIZE_BYTES], share[SIZE_BYTES] = "";
    if (memory->percent > 0) {
        snprintf(share, sizeof(share), "%u%% ", memory->percent);
    }
    snprintf(out, MEMORY_SHARE_TEXT_BYTES, "%s (%sof %s, %s)", print_size(size, memory->n_bytes),
             share, print_size(whole, limit->n_bytes), memory_limit_source_text(limit->source));
    return out;
}

void memory_share_add_line(struct buf *out, const char *name, const struct option_memory *memory,
                           const struct memory_limit *limit) {
    char text[MEMORY_SHARE_TEXT_BYTES];
    buf_printf(out, "%s %s\n", name, memory_share_print(text, memory, limit));
}

void memory_share_log(const char *name, const struct option_memory *memory,
                      const struct memory_limit *limit) {
    char text[MEMORY_SHARE_TEXT_BYTES];
    log_event(LOG_INFO, name, LOG_CSTR("limit", memory_share_print(text, memory, limit)),
              LOG_U64("bytes", memory->n_bytes));
    if (memory->n_bytes > limit->n_bytes) {
        log_event(LOG_WARNING, "a memory setting is more than this process may use",
                  LOG_CSTR("setting", name), LOG_U64("bytes", memory->n_bytes),
                  LOG_U64("usable_bytes", limit->n_bytes),
                  LOG_CSTR("usable", memory_limit_source_text(limit->source)));
    }
}
