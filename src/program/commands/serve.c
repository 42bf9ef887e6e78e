/* `sluice serve`, and `sluice tritonserver`, which is the same with Triton's command line: parses
 * the settings, then checks the models (program/model_server/check.c) or serves them
 * (program/model_server/process.c). */
#include <stdio.h>

#include "core/base/log.h"
#include "core/must/must.h"
#include "core/os/log_file.h"
#include "program/commands/commands.h"
#include "program/model_server/process.h"
#include "program/model_server/settings.h"
#include "program/model_server/triton_flags.h"
#include "program/options/command.h"
#include "program/options/exit_code.h"
#include "program/options/help.h"
#include "serve/ensemble/ensemble.h"
#include "serve/frontend/documents.h"
#include "serve/frontend/labels.h"
#include "serve/frontend/mip/plan.h"
#include "serve/repository/repository.h"

#define NS_PER_S UINT64_C(1000000000)
#define NEVER_NS (UINT64_C(1) << 62)

static int run_server(const struct serve_settings *settings,
                      const struct repository_options *options) {
    struct error err;
    enum status st = serve_process_run(settings, options, &err);
    if (st == ST_OK) {
        return EXIT_CODE_OK;
    }
    if (settings->log_format == LOG_JSON) { /* standard error has JSON lines only */
        log_event(LOG_ERROR, "cannot serve", LOG_CSTR("reason", err.text));
    } else {
        fprintf(stderr, "sluice serve: %s\n", err.text);
    }
    return EXIT_CODE_FAILED;
}

/* The parameters that the configuration file sets for each path. */
static const struct repository_params *params_of(const struct option_texts *paths,
                                                 struct arena *arena) {
    struct repository_params *params = arena_calloc(arena, paths->n, sizeof(*params));
    for (size_t i = 0; i < paths->n; i++) {
        const struct option_pairs *pairs = &paths->pairs[i];
        struct repository_param *items = arena_calloc(arena, pairs->n, sizeof(*items));
        for (size_t j = 0; j < pairs->n; j++) {
            items[j] = (struct repository_param){str_of(pairs->items[j].name),
                                                 str_of(pairs->items[j].value)};
        }
        params[i] = (struct repository_params){items, pairs->n};
    }
    return params;
}

/* For repository_options.opened: makes the front ends' data of a version before it is served, so
 * that a model with settings that they cannot use fails to load. */
static enum status add_frontend_data(void *user, struct model_version *version, struct error *err) {
    (void)user;
    enum status st = mip_plan_add(version, err);
    return st == ST_OK ? model_labels_load(version, err) : st;
}

static const sluice_backend *const BUILTIN[] = {&ensemble_backend};

static struct repository_options options_of(const struct serve_settings *settings,
                                            const struct repository_params *params) {
    return (struct repository_options){
        .paths = settings->paths.items,
        .n_paths = settings->paths.n,
        .path_params = params,
        .model_repositories = settings->model_repositories.items,
        .n_model_repositories = settings->model_repositories.n,
        .backend_dir = settings->backend_dir,
        .builtin = BUILTIN,
        .n_builtin = sizeof(BUILTIN) / sizeof(BUILTIN[0]),
        .ensemble_ops = &ensemble_ops,
        .backend_params = settings->backend_params,
        .n_backend_params = settings->n_backend_params,
        .model_config_name = settings->model_config_name,
        .disable_auto_complete_config = settings->disable_auto_complete_config,
        .model_load_retry_count = settings->model_load_retry_count,
        .op_library_dirs = settings->op_library_dirs.items,
        .n_op_library_dirs = settings->op_library_dirs.n,
        .programs_from_requests = settings->programs_from_requests,
        .gpu_models_on_cpu = settings->gpu_models_on_cpu,
        .host_policies = &settings->policies,
        .default_max_batch_size = settings->default_max_batch_size,
        .max_queue_size = settings->max_queue_size,
        .latencies = &settings->latencies,
        .max_output_size = settings->max_output_size.n_bytes,
        .slow_reader_timeout_ns = settings->slow_reader_timeout_ns,
        .cache_size = settings->cache_size,
        .strict_readiness = settings->strict_readiness,
        .model_control_mode = (enum repository_control)settings->model_control_mode,
        .load_models = settings->load_models.items,
        .n_load_models = settings->load_models.n,
        .repository_poll_ns = settings->repository_poll_secs > 0
                                  ? settings->repository_poll_secs * NS_PER_S
                                  : NEVER_NS,
        .model_load_thread_count =
            settings->model_load_thread_count > 0 ? (size_t)settings->model_load_thread_count : 1,
        .model_load_timeout_ns = settings->model_load_timeout_ns,
        .on_version_opened = add_frontend_data,
        .print_config = document_print_config,
    };
}

static int run(const struct serve_settings *settings, struct arena *arena) {
    const struct repository_params *params = params_of(&settings->paths, arena);
    struct repository_options options = options_of(settings, params);
    return settings->check ? serve_check(settings, &options, arena)
                           : run_server(settings, &options);
}

/* Returns: EXIT_CODE_FAILED when the file of the log can't be opened. */
static int configure_log(const struct serve_settings *settings) {
    struct error err;
    if (settings->log_file && log_file_open(settings->log_file, &err) != ST_OK) {
        fprintf(stderr, "sluice: --log-file: %s\n", err.text);
        return EXIT_CODE_FAILED;
    }
    log_configure((enum log_level)settings->log_level, (enum log_format)settings->log_format);
    log_colour_set(help_style_of(stderr).colour);
    return EXIT_CODE_OK;
}

int cli_serve(int argc, char **argv) {
    struct arena *arena = must_arena_new("the settings");
    struct serve_settings settings;
    int code = serve_settings_read("sluice serve", argc, argv, arena, &settings);
    if (code < 0) {
        code = configure_log(&settings);
        code = code == EXIT_CODE_OK ? run(&settings, arena) : code;
    }
    arena_free(arena);
    return code;
}

/* ---- with Triton's command line -------------------------------------------------------------- */

static int print_triton_help(struct arena *arena) {
    struct buf out;
    buf_init(&out, arena, 4096);
    triton_flags_help(&out);
    return command_write_out("sluice tritonserver", &out);
}

static int run_as_triton(const struct triton_flags *flags, struct arena *arena) {
    struct serve_settings settings;
    int code =
        serve_settings_read("sluice tritonserver", flags->argc, flags->argv, arena, &settings);
    if (code >= 0) {
        return code;
    }
    code = configure_log(&settings);
    if (code != EXIT_CODE_OK) {
        return code;
    }
    triton_flags_log(flags);
    log_level_set(LOG_INFO, !flags->no_info);
    log_level_set(LOG_WARNING, !flags->no_warning);
    log_level_set(LOG_ERROR, !flags->no_error);
    return run(&settings, arena);
}

int cli_tritonserver(int argc, char **argv) {
    struct arena *arena = must_arena_new("the settings");
    struct triton_flags flags;
    struct error err = {0};
    int code;
    if (triton_flags_read(argc, argv, arena, &flags, &err) != ST_OK) {
        fprintf(stderr, "sluice tritonserver: %s\nTry: sluice tritonserver --help\n", err.text);
        code = EXIT_CODE_USAGE;
    } else {
        code = flags.help ? print_triton_help(arena) : run_as_triton(&flags, arena);
    }
    arena_free(arena);
    return code;
}
