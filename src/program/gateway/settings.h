/* The settings of `sluice gateway`: one struct made from settings.def, filled from the command
 * line. */
#ifndef SLUICE_PROGRAM_GATEWAY_SETTINGS_H
#define SLUICE_PROGRAM_GATEWAY_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "net/transport/address.h"
#include "pick/pool/set.h"
#include "program/options/options.h"

/* As --retry-on names them. */
enum gateway_retry { GATEWAY_RETRY_NONE, GATEWAY_RETRY_REFUSED, GATEWAY_RETRY_RESET };

/* One member per row of settings.def, named by its first column, sizes in bytes and times in
 * nanoseconds. After gateway_settings_read `workers` is at least 1, and what the picker gets is
 * valid, but for the content of --config. */
struct gateway_settings {
#define OPTION(field, name, alias, type, ...) OPTION_STORE_##type field;
#include "program/gateway/settings.def"
#undef OPTION
    struct address http_address; /* of `http`; the port may be 0 */
};

/* Reads the arguments of `sluice gateway` (argv[0] is "gateway"). Returns: -1 to continue;
 * otherwise the exit code: `--help` was printed, or an error on standard error. Owns: texts are in
 * argv and in `arena`. */
int gateway_settings_read(int argc, char **argv, struct arena *arena, struct gateway_settings *out);

/* Is --http over TLS? A Unix socket is not. */
bool gateway_has_tls(const struct gateway_settings *settings);

/* Reads and checks the pools, as the picker will. Returns: ST_BAD_CONFIG, ST_IO. Owns: *out until
 * pool_specs_free. Thread: any. */
enum status gateway_settings_read_pools(const struct gateway_settings *settings,
                                        struct pool_specs *out, struct error *err) SLUICE_MUST_USE;
/* The same without the pools. */
enum status gateway_settings_check_pools(const struct gateway_settings *settings,
                                         struct error *err) SLUICE_MUST_USE;

#endif
