/* `sluice serve`: reads its settings, then either checks the models (--check) or serves them
 * (serve_process.c). */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/serve_process.h"
#include "cli/settings.h"
#include "model/repository.h"

/* One sentence of `--check` on standard output: what every model came to. */
static int print_models(struct repository *repository, struct arena *arena) {
    struct buf out;
    buf_init(&out, arena, 4096);
    repository_print(repository, &out);
    if (out.failed || fwrite(out.data, 1, out.len, stdout) != out.len || fflush(stdout) != 0) {
        fprintf(stderr, "sluice serve: writing the result: %s\n", strerror(errno));
        return EXIT_CODE_FAILED;
    }
    return EXIT_CODE_OK;
}

static int check(const struct repository_options *options, struct arena *arena) {
    struct error err;
    struct repository *repository = NULL;
    if (repository_new(options, &repository, &err) != ST_OK) {
        fprintf(stderr, "sluice serve: %s\n", err.text);
        return EXIT_CODE_FAILED;
    }
    enum status st = repository_load(repository, &err);
    int code = print_models(repository, arena);
    repository_stop(repository);
    repository_free(repository);
    return st == ST_OK ? code : EXIT_CODE_FAILED;
}

static int serve(const struct serve_settings *settings, const struct repository_options *options) {
    struct error err;
    enum status st = serve_process_run(settings, options, &err);
    if (st == ST_OK) {
        return EXIT_CODE_OK;
    }
    if (settings->log_format == LOG_JSON) { /* whoever reads it expects nothing else */
        log_event(LOG_ERROR, "cannot serve", LOG_TEXT_OF("reason", err.text));
    } else {
        fprintf(stderr, "sluice serve: %s\n", err.text);
    }
    return EXIT_CODE_FAILED;
}

/* The parameters that the configuration file gives for each path. Returns: NULL when out of
 * memory. */
static const struct repository_params *params_of(const struct option_texts *paths,
                                                 struct arena *arena) {
    struct repository_params *params = arena_calloc(arena, paths->n, sizeof(*params));
    for (size_t i = 0; params && i < paths->n; i++) {
        const struct option_pairs *pairs = &paths->pairs[i];
        struct repository_param *items = arena_calloc(arena, pairs->n, sizeof(*items));
        if (!items) {
            return NULL;
        }
        for (size_t j = 0; j < pairs->n; j++) {
            items[j] = (struct repository_param){str_of(pairs->items[j].name),
                                                 str_of(pairs->items[j].value)};
        }
        params[i] = (struct repository_params){items, pairs->n};
    }
    return params;
}

int cli_serve(int argc, char **argv) {
    struct arena *arena = arena_new(NULL, 0);
    if (!arena) {
        fprintf(stderr, "sluice serve: out of memory\n");
        return EXIT_CODE_FAILED;
    }
    struct serve_settings settings;
    int code = serve_settings_read(argc, argv, arena, &settings);
    if (code < 0) {
        log_configure((enum log_level)settings.log_level, (enum log_format)settings.log_format);
        struct repository_options options = {
            .paths = settings.paths.items,
            .n_paths = settings.paths.n,
            .path_params = params_of(&settings.paths, arena),
            .directories = settings.model_repositories.items,
            .n_directories = settings.model_repositories.n,
            .backend_dir = settings.backend_dir,
            .default_max_batch_size = settings.default_max_batch_size,
            .max_queue_size = settings.max_queue_size,
            .strict_readiness = settings.strict_readiness,
        };
        code = settings.check ? check(&options, arena) : serve(&settings, &options);
    }
    arena_free(arena);
    return code;
}
