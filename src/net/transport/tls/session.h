/* One end of a TLS connection, the server's unless SSL_set_connect_state said otherwise, sans I/O:
 * bytes from the peer go in, bytes to the peer come out, and between them is what the protocol
 * above reads and writes. No socket, no clock, no buffer of its own but OpenSSL's: both ends of a
 * connection can stand in a test.
 *
 * Sealed is what travels, encrypted in records; plain is what is in it.
 *
 * Thread: one at a time. */
#ifndef SLUICE_NET_TRANSPORT_TLS_SESSION_H
#define SLUICE_NET_TRANSPORT_TLS_SESSION_H

#include <openssl/ssl.h>
#include <stdbool.h>

#include "core/base/status.h"
#include "core/base/str.h"
#include "net/transport/tls/context.h"

enum {
    TLS_RECORD_BYTES = 16384, /* of plain bytes, at most (RFC 8446, 5.1) */
    TLS_ENCRYPTED_RECORD_MAX_BYTES = TLS_RECORD_BYTES + 1024, /* is enough for one, sealed */
};

/* What a function had to work with, the caller's: the peer's bytes, of which what was taken is cut
 * off, and room for bytes to the peer. */
struct tls_io {
    struct str in;
    char *out;
    size_t out_len, out_cap;
};

enum tls_result {
    TLS_DONE,       /* what was asked for */
    TLS_WANT_READ,  /* `in` is used up, and more has to come first */
    TLS_WANT_WRITE, /* `out` has no room: empty it and call again */
    TLS_CLOSED,     /* the peer said that it sends nothing more (close_notify) */
    TLS_FAILED,     /* over; what `out` holds still tells the peer why */
};

/* Why a handshake failed, for the counters; in the order of the metric's rows. */
enum tls_failure {
    TLS_FAILURE_PLAINTEXT,    /* what came is no TLS */
    TLS_FAILURE_PROTOCOL,     /* no version, cipher, … in common, or against the rules */
    TLS_FAILURE_ALPN,         /* none of the protocols that the client offers */
    TLS_FAILURE_CERTIFICATE,  /* the client's is missing or refused */
    TLS_FAILURE_REFUSED,      /* the client refused ours, or gave up with an alert */
    TLS_FAILURE_TIMEOUT,      /* it did not end in time */
    TLS_FAILURE_DISCONNECTED, /* the connection ended before it did */
    TLS_FAILURES,
};

struct tls_session {
    SSL *ssl;
    struct tls_context *context;
    struct tls_io *io; /* during a call */
    struct str alpn;   /* ours, in the order of liking, each after its length; empty: any */
    bool broken;
};

/* Fills in zeroed memory. `context` is taken over: its reference is the session's. Returns: false
 * when out of memory. Owns: tls_session_fini, also after a failure. */
bool tls_session_init(struct tls_session *session, struct tls_context *context, struct str alpn)
    __attribute__((warn_unused_result));
/* Zeroed memory is allowed. */
void tls_session_fini(struct tls_session *session);

/* Goes on with the handshake. Returns: TLS_DONE when it is over, TLS_WANT_READ, TLS_WANT_WRITE, or
 * TLS_FAILED with `*why` and a sentence. */
enum tls_result tls_session_handshake(struct tls_session *session, struct tls_io *io,
                                      enum tls_failure *why, struct error *err)
    __attribute__((warn_unused_result));
/* After the handshake: opens what has come, up to `n_bytes`. `*n_read` is always set. Returns:
 * TLS_DONE when `data` is full, TLS_WANT_READ, TLS_CLOSED, or TLS_FAILED. */
enum tls_result tls_session_read(struct tls_session *session, struct tls_io *io, char *data,
                                 size_t n_bytes, size_t *n_read, struct error *err)
    __attribute__((warn_unused_result));
/* After the handshake: seals one record of at most TLS_RECORD_BYTES. Returns: TLS_DONE when all of
 * `data` is sealed, TLS_WANT_WRITE when nothing is (there is less than
 * TLS_ENCRYPTED_RECORD_MAX_BYTES), TLS_FAILED. */
enum tls_result tls_session_write(struct tls_session *session, struct tls_io *io, struct str data)
    __attribute__((warn_unused_result));
/* Tells the peer that nothing more comes (close_notify), if it can be told. */
void tls_session_send_close_notify(struct tls_session *session, struct tls_io *io);

/* For the log: "TLSv1.3", "TLS_AES_256_GCM_SHA384", and whether an earlier session went on. */
const char *tls_session_version(const struct tls_session *session);
const char *tls_session_cipher(const struct tls_session *session);
bool tls_session_is_resumed(const struct tls_session *session);

/* Do the first bytes of a connection look like a request in plain text? */
bool tls_looks_like_plaintext(struct str first);

/* ---- for context.c ----------------------------------------------------------------------- */

/* Returns: NULL when out of memory. */
BIO_METHOD *tls_session_bio_method(void);
int tls_session_on_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                        const unsigned char *in, unsigned in_len, void *user);

#endif
