/* `sluice bench`: load for model servers. A first request makes a wrong name or shape one error
 * instead of a table of failures; then the steps run, and the reports are written. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/must/must.h"
#include "core/os/cpus.h"
#include "program/commands/commands.h"
#include "program/loadgen/report/report.h"
#include "program/loadgen/run.h"
#include "program/options/command.h"
#include "program/requests/file.h"

/* A run of the command; lives in its arena. */
struct bench_command {
    struct arena *arena;
    struct bench_settings settings;
    struct bench_call call;
    struct bench_result result;
};

static enum status run_load(struct bench_command *command, struct error *err) {
    const struct bench_options *options = &command->settings.options;
    struct cpus cpus;
    cpus_read(&cpus);
    command->result = (struct bench_result){.settings = &command->settings,
                                            .call = &command->call,
                                            .started_s = (int64_t)time(NULL),
                                            .n_cpus = cpus.usable};
    enum status status = bench_call_send_once(&command->call, &command->result.first_ns, err);
    if (status != ST_OK) {
        return error_prefix(err, "the first request failed, no load was made");
    }
    struct bench_progress *progress = options->quiet ? NULL : bench_progress_new(stderr);
    status = bench_run(command->arena, &command->result, progress, err);
    bench_progress_free(progress);
    return status;
}

static enum status write_text(struct arena *arena, const struct bench_result *result,
                              void (*print)(struct buf *, const struct bench_result *),
                              const char *path, struct error *err) {
    struct buf out;
    buf_init(&out, arena, 65536);
    print(&out, result);
    struct str all = buf_str(&out);
    return file_write(path, &all, 1, err);
}

/* Writes the table for people, and the files that were requested. */
static enum status write_report(struct bench_command *command, struct error *err) {
    const struct bench_options *options = &command->settings.options;
    bool json_out = options->json && strcmp(options->json, "-") == 0;
    bool html_out = options->html && strcmp(options->html, "-") == 0;
    enum status status = write_text(command->arena, &command->result, bench_report_print,
                                    json_out || html_out ? "/dev/stderr" : "-", err);
    if (status == ST_OK && options->json) {
        status = write_text(command->arena, &command->result, bench_json_print, options->json, err);
    }
    if (status == ST_OK && options->html) {
        status = write_text(command->arena, &command->result, bench_html_print, options->html, err);
    }
    return status;
}

/* Runs the whole command. */
static enum status run_all(struct bench_command *command, struct error *err) {
    struct tls_client_options options = bench_tls_options(&command->settings.options);
    struct client_tls *tls;
    enum status status = tls_client_new(&options, &command->settings.server, &tls, err);
    if (status == ST_OK &&
        (bench_call_init(command->arena, &command->settings, tls, &command->call, err) != ST_OK ||
         run_load(command, err) != ST_OK || write_report(command, err) != ST_OK)) {
        status = err->status;
    }
    client_tls_free(tls);
    return status;
}

int cli_bench(int argc, char **argv) {
    struct error err = {0};
    struct arena *arena = must_arena_new("the benchmark");
    struct bench_command *command = arena_calloc(arena, 1, sizeof(*command));
    command->arena = arena;
    int code = bench_settings_read(argc, argv, arena, &command->settings);
    if (code != COMMAND_CONTINUE) {
        goto out;
    }
    enum status status = run_all(command, &err);
    code = status == ST_OK && bench_all_succeeded(&command->result) ? EXIT_CODE_OK
           : status == ST_BAD_CONFIG                                ? EXIT_CODE_USAGE
                                                                    : EXIT_CODE_FAILED;
    if (status != ST_OK) {
        fprintf(stderr, "sluice bench: %s\n", err.text);
    }
out:
    arena_free(arena);
    return code;
}
