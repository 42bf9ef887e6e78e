/* A flag of another program's command line, which is taken here as well, but without an effect. */
#ifndef SLUICE_PROGRAM_OPTIONS_FLAG_NOTE_H
#define SLUICE_PROGRAM_OPTIONS_FLAG_NOTE_H

#include <stddef.h>

#include "core/base/log.h"

struct flag_note {
    const char *flag; /* "--tracing=true" */
    const char *why;
};

/* Logs a line for each; `event` is a string that stays. */
static inline void flag_notes_log(const char *event, const struct flag_note *notes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        log_event(LOG_INFO, event, LOG_CSTR("flag", notes[i].flag), LOG_CSTR("why", notes[i].why));
    }
}

#endif
