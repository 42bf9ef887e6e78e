/* The settings of `sluice pick`: one struct made from settings.def, filled from the command
 * line. What the pool is, is another file's (pick/discovery/file/pool_file.h). */
#ifndef SLUICE_PROGRAM_PICKER_SETTINGS_H
#define SLUICE_PROGRAM_PICKER_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "pick/discovery/file/pool_watch.h"
#include "pick/discovery/kube/source.h"
#include "program/options/options.h"
#include "program/picker/upstream_flags.h"
#include "program/process/listen_address.h"

/* One member per row of settings.def, named by its first column, sizes in bytes and times in
 * nanoseconds. `log_level` is an enum log_level, `log_format` an enum log_format. After
 * pick_settings_read: `workers` is at least 1, `grpc` has at least one item, and there is a config
 * (as a file or as text), an endpoint or a cluster; with a cluster there is a pool's name. */
struct pick_settings {
#define OPTION(field, name, alias, type, ...) OPTION_STORE_##type field;
#include "program/picker/settings.def"
#undef OPTION
    struct upstream_flags upstream;
};

/* Reads the arguments of `sluice pick` (argv[0] is "pick"). Returns: -1 to go on; otherwise the
 * exit code to end with: `--help` was printed, or what is wrong was said on standard error.
 * Owns: texts lie in argv and in `arena`. */
int pick_settings_read(int argc, char **argv, struct arena *arena, struct pick_settings *out);

/* Which pool of which cluster it is, with --kube; what is to be called is the caller's. */
struct kube_source_options pick_cluster_options(const struct pick_settings *settings);
/* What --grpc is read by. */
struct listen_scheme pick_grpc_scheme(const struct pick_settings *settings);
/* Where the pool comes from. */
struct pool_watch_options pick_pool_options(const struct pick_settings *settings);
/* Does gRPC speak TLS? */
bool pick_has_tls(const struct pick_settings *settings);

#endif
