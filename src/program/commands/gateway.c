/* `sluice gateway`: parses its settings, then prints Envoy's configuration or runs the gateway
 * (program/gateway/process.c). */
#include <stdio.h>

#include "core/base/log.h"
#include "core/must/must.h"
#include "program/commands/commands.h"
#include "program/gateway/process.h"
#include "program/options/exit_code.h"
#include "program/options/help.h"

static int failed(const struct gateway_settings *settings, const struct error *err) {
    if (settings->log_format == LOG_JSON) { /* standard error has JSON lines only */
        log_event(LOG_ERROR, "cannot serve", LOG_CSTR("reason", err->text));
    } else {
        fprintf(stderr, "sluice gateway: %s\n", err->text);
    }
    return EXIT_CODE_FAILED;
}

static int run_command(const struct gateway_settings *settings, struct arena *arena) {
    struct error err;
    if (settings->print_config) {
        return gateway_settings_check_pools(settings, &err) == ST_OK
                   ? gateway_print_config(settings, arena)
                   : failed(settings, &err);
    }
    return gateway_process_run(settings, &err) == ST_OK ? EXIT_CODE_OK : failed(settings, &err);
}

int cli_gateway(int argc, char **argv) {
    struct arena *arena = must_arena_new("the settings");
    struct gateway_settings settings;
    int code = gateway_settings_read(argc, argv, arena, &settings);
    if (code < 0) {
        log_configure((enum log_level)settings.log_level, (enum log_format)settings.log_format);
        log_colour_set(help_style_of(stderr).colour);
        code = run_command(&settings, arena);
    }
    arena_free(arena);
    return code;
}
