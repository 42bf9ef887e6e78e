/* The settings of `sluice serve`: a struct made from settings.def, filled from the command line and
 * the YAML file. */
#ifndef SLUICE_PROGRAM_MODEL_SERVER_SETTINGS_H
#define SLUICE_PROGRAM_MODEL_SERVER_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "codec/http1/web_access.h"
#include "core/base/arena.h"
#include "core/os/host_policy.h"
#include "core/os/memory_limit.h"
#include "program/options/options.h"
#include "serve/frontend/http/platform.h"
#include "serve/frontend/restrictions.h"
#include "serve/repository/repository.h"
#include "serve/scheduler/statistics/latency.h"
#include "serve/trace/tracer.h"

/* One member per row of settings.def, named by its first column; sizes in bytes and times in
 * nanoseconds. `log_level` is an enum log_level, `log_format` an enum log_format. After
 * serve_settings_read: `workers` and `picture_threads` are at least 1, `backend_dir`, `parts_dir`
 * and `id` are not NULL, `http` has at least one item; `config` and `ready_file` are NULL
 * when not given. */
struct serve_settings {
#define OPTION(field, name, alias, type, ...) OPTION_STORE_##type field;
#include "program/model_server/settings.def"
#undef OPTION
    const struct repository_backend_param *backend_params; /* of backend_configs, and python */
    size_t n_backend_params;
    const char *picture_part;         /* the file in parts_dir */
    struct tracer_options trace;      /* parsed from trace_config */
    struct memory_limit memory_limit; /* what percentages are shares of */
    struct web_access web;            /* --allowed-host and --allowed-origin */
    struct restrictions http_restrictions, grpc_restrictions;
    struct http_platform platform_routes;
    struct latency_options latencies; /* parsed from metrics_config */
    struct host_policies policies;    /* parsed from host_policies */
};

/* Parses the arguments of `sluice serve` and the file of --config; `command` is the name in
 * messages ("sluice serve"). Returns: -1 to continue, else the exit code: the help was printed, or
 * the error was reported on standard error. Owns: texts are in argv and in `arena`. */
int serve_settings_read(const char *command, int argc, char **argv, struct arena *arena,
                        struct serve_settings *out);

/* The folder of backends (parts) of the program at `exe` ("/usr/bin/sluice"): `backends` (`parts`)
 * beside it in a build folder, else the one of `make install`. */
const char *backend_dir_of(const char *exe, struct arena *arena);
const char *parts_dir_of(const char *exe, struct arena *arena);
/* The picture part in the default folder of this program's parts. Returns: NULL when out of
 * memory. */
const char *picture_part_default(struct arena *arena);

#endif
