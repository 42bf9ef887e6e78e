/* A certificate of our own making, for peers that want TLS and don't verify whom they talk to: a
 * new key each time, in PEM. It refuses to be an authority.
 *
 * Thread: any. */
#ifndef SLUICE_NET_TRANSPORT_TLS_SELF_SIGNED_H
#define SLUICE_NET_TRANSPORT_TLS_SELF_SIGNED_H

#include <time.h>

#include "core/base/status.h"
#include "core/base/str.h"

/* Both in one block of PEM: the certificate, and then its key. For "localhost" and the loopback
 * addresses, valid from a day before `now` for ten years. Returns: ST_NO_MEMORY, ST_INTERNAL with
 * OpenSSL's reason. Owns: *out until tls_self_signed_free. */
enum status tls_self_signed_new(time_t now, struct str *out, struct error *err)
    __attribute__((warn_unused_result));
/* Overwrites it first: it is a secret. */
void tls_self_signed_free(struct str *pem);

#endif
