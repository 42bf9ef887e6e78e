/* What `--mip` says: where to listen, and which model to serve there.
 *
 *     tcp://HOST:PORT=MODEL[:VERSION]     unix:///PATH=MODEL[:VERSION]     unix://PATH=…
 *
 * HOST as net/transport/address.h takes it; a path with three slashes is absolute. The model's name
 * is behind the last '='. A name may have a ':' in it: digits behind the last one are a version
 * unless there is a model of the whole name. */
#ifndef SLUICE_SERVE_FRONTEND_MIP_TARGET_H
#define SLUICE_SERVE_FRONTEND_MIP_TARGET_H

#include "core/base/status.h"
#include "core/base/str.h"
#include "net/transport/address.h"
#include "serve/repository/repository.h"

struct mip_target {
    struct address address;
    struct str model;
    struct str version; /* ptr NULL: the highest that is ready */
};

/* Takes `text` apart; the version stays with the name until mip_target_resolve. Views of `text`.
 * Returns: ST_BAD_CONFIG saying what is wrong and what is right. */
enum status mip_target_parse(struct str text, struct mip_target *out, struct error *err)
    __attribute__((warn_unused_result));
/* Tells name and version apart, by what the repository has. Models need not be loaded. Returns:
 * ST_BAD_CONFIG when there is no such model; when it has loaded, also when there is no such
 * version. */
enum status mip_target_resolve(struct mip_target *target, struct repository *repository,
                               struct error *err) __attribute__((warn_unused_result));

/* An address as MIP's clients write it: "tcp://127.0.0.1:9000", "unix:///run/x.sock". Returns:
 * `out`. */
enum { MIP_URL_BYTES = ADDRESS_TEXT_BYTES + 8 };
const char *mip_url_print(const struct address *address, char out[MIP_URL_BYTES]);

#endif
