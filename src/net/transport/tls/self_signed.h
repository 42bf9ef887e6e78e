/* A self-signed certificate for peers that require TLS and don't verify the server: a new key each
 * time, in PEM; it is not a CA.
 *
 * Thread: any. */
#ifndef SLUICE_NET_TRANSPORT_TLS_SELF_SIGNED_H
#define SLUICE_NET_TRANSPORT_TLS_SELF_SIGNED_H

#include <time.h>

#include "core/base/status.h"
#include "core/base/str.h"

/* Makes one PEM text of the certificate and its key, for "localhost" and the loopback addresses,
 * valid from a day before `now` for ten years. Returns: ST_NO_MEMORY, ST_INTERNAL with OpenSSL's
 * reason. Owns: *out until tls_self_signed_free. */
enum status tls_self_signed_new(time_t now, struct str *out, struct error *err) SLUICE_MUST_USE;
/* Overwrites it first, as it contains the key. */
void tls_self_signed_free(struct str *pem);

#endif
