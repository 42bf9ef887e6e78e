/* The settings of `sluice pick`: one struct made from settings.def, filled from the command line.
 * The pools' configuration is read by pick/discovery/file/pool_file.h. */
#ifndef SLUICE_PROGRAM_PICKER_SETTINGS_H
#define SLUICE_PROGRAM_PICKER_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "codec/http1/web_access.h"
#include "core/base/arena.h"
#include "core/os/memory_limit.h"
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
    struct memory_limit memory_limit; /* what percentages are shares of */
    struct web_access web;            /* --allowed-host and --allowed-origin */
};

/* Reads the arguments of `sluice pick` (argv[0] is "pick"). Returns: -1 to continue; otherwise the
 * exit code: `--help` was printed, or an error on standard error. Owns: texts are in argv and in
 * `arena`. */
int pick_settings_read(int argc, char **argv, struct arena *arena, struct pick_settings *out);

/* The options of the source for --kube, without callbacks. */
struct kube_source_options pick_cluster_options(const struct pick_settings *settings);
/* How addresses of --grpc are parsed. */
struct listen_scheme pick_grpc_scheme(const struct pick_settings *settings);
/* The sources of the pools. */
struct pool_watch_options pick_pool_options(const struct pick_settings *settings);
/* With upstream's flags the configuration may name a file of endpoints (file-discovery): then
 * --pool-name is only a name, and there is no cluster. Returns: ST_BAD_CONFIG, ST_IO. */
enum status pick_settings_choose_discovery(struct pick_settings *settings,
                                           struct error *err) SLUICE_MUST_USE;
/* Is gRPC over TLS available? */
bool pick_has_tls(const struct pick_settings *settings);

#endif
