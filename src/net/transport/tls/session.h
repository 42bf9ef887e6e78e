/* The server's side of a TLS connection, sans I/O: encrypted bytes of the peer go in, encrypted
 * bytes to the peer come out, and the protocol reads and writes plaintext. It has no buffers
 * besides OpenSSL's, so a client can run beside it in a test.
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
    TLS_RECORD_BYTES = 16384, /* limit of plaintext (RFC 8446, 5.1) */
    /* Capacity that suffices for one encrypted record. */
    TLS_ENCRYPTED_RECORD_MAX_BYTES = TLS_RECORD_BYTES + 1024,
};

/* The caller's buffers: input from the peer, from which consumed bytes are removed, and output to
 * the peer. */
struct tls_io {
    struct str in, in_after; /* in two pieces, the second of which may be empty */
    char *out;
    size_t out_len, out_cap;
};

enum tls_result {
    TLS_DONE,       /* the operation is complete */
    TLS_WANT_READ,  /* `in` is consumed, more input is needed */
    TLS_WANT_WRITE, /* `out` is full: send it and call again */
    TLS_CLOSED,     /* the peer sent close_notify */
    TLS_FAILED,     /* failed; `out` may hold an alert for the peer */
};

/* Why a handshake failed; in the order of the metric's rows. */
enum tls_failure {
    TLS_FAILURE_PLAINTEXT,   /* the input is not TLS */
    TLS_FAILURE_PROTOCOL,    /* no common version or cipher, or a protocol violation */
    TLS_FAILURE_ALPN,        /* no common ALPN protocol */
    TLS_FAILURE_CERTIFICATE, /* the client's certificate is missing or refused */
    /* The client refused the server's certificate, or sent another alert. */
    TLS_FAILURE_REFUSED,
    TLS_FAILURE_TIMEOUT,      /* the handshake timed out */
    TLS_FAILURE_DISCONNECTED, /* the connection closed during the handshake */
    TLS_FAILURE_MEMORY,       /* the server has no memory for it */
    TLS_FAILURES,
};

struct tls_session {
    SSL *ssl;
    struct tls_context *context;
    struct tls_io *io; /* during a call */
    struct str alpn;   /* ours, in order of preference, each after its length; empty: any */
    bool broken;
    bool established;
    unsigned n_extra; /* messages of TLS itself after the handshake, without much data between */
    size_t n_since;   /* data bytes meanwhile */
};

/* A client may send so many messages of TLS itself in a row (updates of keys, renegotiations that
 * are refused; our answers count, too) until it has sent so much data. Each takes as long as a
 * hundred kilobytes of data, and OpenSSL handles all that have arrived in one call. An honest
 * client updates its keys after gigabytes. */
enum { TLS_EXTRA_MAX = 64, TLS_EXTRA_BYTES = 1 << 20 };

/* Initialises zeroed memory. Takes the reference `context`. Returns: false when out of memory.
 * Owns: tls_session_fini, also after a failure. */
bool tls_session_init(struct tls_session *session, struct tls_context *context,
                      struct str alpn) SLUICE_MUST_USE;
/* Zeroed memory is allowed. */
void tls_session_fini(struct tls_session *session);

/* Continues the handshake. Returns: TLS_DONE when it is complete, TLS_WANT_READ, TLS_WANT_WRITE, or
 * TLS_FAILED with `*why` and `err`. */
enum tls_result tls_session_handshake(struct tls_session *session, struct tls_io *io,
                                      enum tls_failure *why, struct error *err) SLUICE_MUST_USE;
/* After the handshake: decrypts up to `n_bytes`. `*n_read` is always set. Returns: TLS_DONE when
 * `data` is full, TLS_WANT_READ, TLS_CLOSED, or TLS_FAILED. */
enum tls_result tls_session_read(struct tls_session *session, struct tls_io *io, char *data,
                                 size_t n_bytes, size_t *n_read, struct error *err) SLUICE_MUST_USE;
/* After the handshake: encrypts one record of at most TLS_RECORD_BYTES. Returns: TLS_DONE when all
 * of `data` is encrypted, TLS_WANT_WRITE when nothing is (`out` has less capacity than
 * TLS_ENCRYPTED_RECORD_MAX_BYTES), TLS_FAILED. */
enum tls_result tls_session_write(struct tls_session *session, struct tls_io *io,
                                  struct str data) SLUICE_MUST_USE;
/* Writes close_notify to `out`, if the session's state allows it. */
void tls_session_send_close_notify(struct tls_session *session, struct tls_io *io);

/* For the log: "TLSv1.3", "TLS_AES_256_GCM_SHA384", and whether an earlier session was resumed. */
const char *tls_session_version(const struct tls_session *session);
const char *tls_session_cipher(const struct tls_session *session);
bool tls_session_is_resumed(const struct tls_session *session);

/* Returns: whether the first bytes of a connection look like a plaintext request. */
bool tls_looks_like_plaintext(struct str first);

/* ---- for context.c ----------------------------------------------------------------------- */

/* Returns: NULL when out of memory. */
BIO_METHOD *tls_session_bio_method(void);
void tls_session_on_message(int is_ours, int version, int type, const void *data, size_t n_bytes,
                            SSL *ssl, void *user);
int tls_session_on_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                        const unsigned char *in, unsigned in_len, void *user);

#endif
