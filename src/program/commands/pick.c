/* `sluice pick`: parses its settings, then checks them (program/picker/check.c) or runs the picker
 * (program/picker/process.c). */
#include <stdio.h>

#include "core/base/log.h"
#include "core/must/must.h"
#include "program/commands/commands.h"
#include "program/options/exit_code.h"
#include "program/options/help.h"
#include "program/picker/process.h"

static int failed(const struct pick_settings *settings, const struct error *err) {
    if (settings->log_format == LOG_JSON) { /* standard error has JSON lines only */
        log_event(LOG_ERROR, "cannot pick", LOG_CSTR("reason", err->text));
    } else {
        fprintf(stderr, "sluice pick: %s\n", err->text);
    }
    return EXIT_CODE_FAILED;
}

static int run_command(struct pick_settings *settings, struct arena *arena) {
    struct error err;
    if (pick_settings_choose_discovery(settings, &err) != ST_OK) {
        return failed(settings, &err);
    }
    if (settings->check) {
        return pick_check(settings, arena);
    }
    if (settings->explain) {
        return pick_explain_request(settings, arena);
    }
    return pick_process_run(settings, &err) == ST_OK ? EXIT_CODE_OK : failed(settings, &err);
}

int cli_pick(int argc, char **argv) {
    struct arena *arena = must_arena_new("the settings");
    struct pick_settings settings;
    int code = pick_settings_read(argc, argv, arena, &settings);
    if (code < 0) {
        log_configure((enum log_level)settings.log_level, (enum log_format)settings.log_format);
        log_colour_set(help_style_of(stderr).colour);
        upstream_flags_log(&settings.upstream);
        code = run_command(&settings, arena);
    }
    arena_free(arena);
    return code;
}
