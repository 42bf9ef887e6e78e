/* Why TLS failed, in words for whoever runs the server. For the tls_*.c files of this room only. */
#ifndef SLUICE_NET_TRANSPORT_TLS_FAILURE_H
#define SLUICE_NET_TRANSPORT_TLS_FAILURE_H

#include "net/transport/tls/session.h"

/* Explains what waits in OpenSSL's queue of errors, and empties it. */
enum tls_failure tls_failure_explain(const struct tls_session *session, struct error *err);

#endif
