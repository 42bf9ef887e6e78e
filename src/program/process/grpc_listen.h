/* Listening where --grpc says, of the server and of the picker. */
#ifndef SLUICE_PROGRAM_PROCESS_GRPC_LISTEN_H
#define SLUICE_PROGRAM_PROCESS_GRPC_LISTEN_H

#include "net/server/grpc/server.h"
#include "program/process/listen_address.h"

/* Listens at `text`, an item of the setting, and says so in the log. `tls` may be NULL where
 * `scheme` has no certificate; `any_tls`: as of listen_address_log. Fills `place`, with the real
 * port. Returns: why it can't, with the flag. Thread: the server's acceptor. */
enum status grpc_listen(struct grpc_server *server, const struct listen_scheme *scheme,
                        const char *text, const struct tls_server *tls, bool any_tls,
                        struct listen_address *listen_address, struct error *err)
    __attribute__((warn_unused_result));

#endif
