/* The setting --mip: where to listen, and which model to serve there.
 *
 *     tcp://HOST:PORT=MODEL[:VERSION]     unix:///PATH=MODEL[:VERSION]     unix://PATH=…
 *
 * HOST is in the form of net/transport/address.h; a path with three slashes is absolute. The
 * model's name follows the last '='. A name may contain ':': digits after the last one are a
 * version, unless there is a model with the whole name. */
#ifndef SLUICE_SERVE_FRONTEND_MIP_TARGET_H
#define SLUICE_SERVE_FRONTEND_MIP_TARGET_H

#include <stdatomic.h>

#include "core/base/status.h"
#include "core/base/str.h"
#include "net/transport/address.h"
#include "serve/repository/repository.h"

struct mip_target {
    struct address address;
    /* Workers read these once `resolved` is set. */
    struct str model;
    struct str version; /* ptr NULL: the highest ready version */
    atomic_bool resolved;
};

/* Parses `text`; the version stays in the name until mip_target_resolve. Returns: ST_BAD_CONFIG
 * with the expected form. Owns: views of `text`. */
enum status mip_target_parse(struct str text, struct mip_target *out,
                             struct error *err) SLUICE_MUST_USE;
/* Separates name and version by the models in the repository, which need not be loaded, and sets
 * `resolved`. Returns:
 * ST_BAD_CONFIG when there is no such model; when it is loaded, also when there is no such version.
 */
enum status mip_target_resolve(struct mip_target *target, struct repository *repository,
                               struct error *err) SLUICE_MUST_USE;

/* Prints an address as a URL of MIP: "tcp://127.0.0.1:9000", "unix:///run/x.sock". Returns: `out`.
 */
enum { MIP_URL_BYTES = ADDRESS_TEXT_BYTES + 8 };
const char *mip_url_print(const struct address *address, char out[MIP_URL_BYTES]);

#endif
