/* `sluice pick`: parses its settings, then checks them (program/picker/check.c) or runs the picker
 * (program/picker/process.c). */
#include <stdio.h>

#include "core/base/log.h"
#include "core/must/must.h"
#include "program/commands/commands.h"
#include "program/options/exit_code.h"
#include "program/options/help.h"
#include "program/picker/process.h"

static int run_picker(const struct pick_settings *settings) {
    struct error err;
    if (pick_process_run(settings, &err) == ST_OK) {
        return EXIT_CODE_OK;
    }
    if (settings->log_format == LOG_JSON) { /* standard error has JSON lines only */
        log_event(LOG_ERROR, "cannot pick", LOG_CSTR("reason", err.text));
    } else {
        fprintf(stderr, "sluice pick: %s\n", err.text);
    }
    return EXIT_CODE_FAILED;
}

int cli_pick(int argc, char **argv) {
    struct arena *arena = must_arena_new("the settings");
    struct pick_settings settings;
    int code = pick_settings_read(argc, argv, arena, &settings);
    if (code < 0) {
        log_configure((enum log_level)settings.log_level, (enum log_format)settings.log_format);
        log_colour_set(help_style_of(stderr).colour);
        upstream_flags_log(&settings.upstream);
        code = settings.check     ? pick_check(&settings, arena)
               : settings.explain ? pick_explain_request(&settings, arena)
                                  : run_picker(&settings);
    }
    arena_free(arena);
    return code;
}
