/* `sluice infer`: one inference request from the command line, over the protocol that the URL
 * names. */
#include <stdio.h>

#include "core/must/must.h"
#include "program/commands/commands.h"
#include "program/commands/infer.h"
#include "program/options/exit_code.h"

static int run_infer(struct arena *arena, const struct infer_settings *settings) {
    static enum status (*const INFER[])(struct arena *, const struct infer_settings *,
                                        struct error *) = {
        [CLIENT_HTTP] = infer_http,
        [CLIENT_GRPC] = infer_grpc,
        [CLIENT_MIP] = infer_mip,
    };
    struct error err = {0};
    enum status status = INFER[settings->server.protocol](arena, settings, &err);
    if (status == ST_OK) {
        return EXIT_CODE_OK;
    }
    fprintf(stderr, "sluice infer: %s\n", err.text);
    return status == ST_BAD_CONFIG ? EXIT_CODE_USAGE : EXIT_CODE_FAILED;
}

int cli_infer(int argc, char **argv) {
    struct infer_settings settings;
    struct arena *arena = must_arena_new("the request");
    int code = infer_settings_read(argc, argv, arena, &settings);
    if (code < 0) {
        code = run_infer(arena, &settings);
    }
    arena_free(arena);
    return code;
}
