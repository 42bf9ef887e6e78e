/* TLS of the picker's gRPC: from files, or with a certificate of its own making. */
#ifndef SLUICE_PROGRAM_PICKER_TLS_H
#define SLUICE_PROGRAM_PICKER_TLS_H

#include "net/transport/tls/server.h"
#include "program/picker/settings.h"

/* `*out` is NULL where no TLS is asked for. Returns: why the files can't be used, with their
 * setting. Owns: *out until tls_server_free. */
enum status pick_tls_open(const struct pick_settings *settings, struct tls_server **out,
                          struct error *err) __attribute__((warn_unused_result));

#endif
