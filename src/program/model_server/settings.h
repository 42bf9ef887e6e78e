/* The settings of `sluice serve`: one struct made from settings.def, filled from the command line
 * and the YAML file. It refuses to act on them: that is program/commands/serve.c's. */
#ifndef SLUICE_PROGRAM_MODEL_SERVER_SETTINGS_H
#define SLUICE_PROGRAM_MODEL_SERVER_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "program/options/options.h"
#include "serve/trace/tracer.h"

/* One member per row of settings.def, named by its first column, sizes in bytes and times in
 * nanoseconds. `log_level` is an enum log_level, `log_format` an enum log_format. After
 * serve_settings_read: `workers` and `picture_threads` are at least 1, `backend_dir`, `parts_dir`
 * and `server_id` are never NULL, `http` has at least one item; `config` and `ready_file` are NULL
 * when not given. */
struct serve_settings {
#define OPTION(field, name, alias, type, ...) OPTION_STORE_##type field;
#include "program/model_server/settings.def"
#undef OPTION
    const char *picture_part;    /* the file in parts_dir */
    struct tracer_options trace; /* what trace_config says */
};

/* Reads the arguments of `sluice serve` (argv[0] is "serve") and the file that --config names.
 * Returns: -1 to go on; otherwise the exit code to end with: `--help` was printed, or what is wrong
 * was said on standard error.
 * Owns: texts lie in argv and in `arena`. */
int serve_settings_read(int argc, char **argv, struct arena *arena, struct serve_settings *out);

/* Where the backends (the parts) are that belong to the program at `exe` ("/usr/bin/sluice"):
 * `backends` (`parts`) beside it, in the build folder, else where `make install` puts them.
 * Returns: NULL when out of memory. */
const char *backend_dir_of(const char *exe, struct arena *arena);
const char *parts_dir_of(const char *exe, struct arena *arena);

#endif
