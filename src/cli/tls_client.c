/* From the files of a command line to OpenSSL's settings. */
#include "cli/tls_client.h"

#include <openssl/err.h>
#include <stdlib.h>
#include <string.h>

#include "cli/tls_transport.h"

static const char *reason(void) {
    unsigned long error = ERR_peek_error();
    bool system = error != 0 && ERR_SYSTEM_ERROR(error);
    const char *text = system ? strerror(ERR_GET_REASON(error)) : ERR_reason_error_string(error);
    ERR_clear_error();
    return text ? text : "OpenSSL gives no reason";
}

/* ---- files ----------------------------------------------------------------------------------- */

static enum status use_cacert(SSL_CTX *ssl, const char *path, struct error *err) {
    if (!path) {
        SSL_CTX_set_default_verify_paths(ssl); /* one that trusts nobody says so when it matters */
        return ST_OK;
    }
    if (SSL_CTX_load_verify_locations(ssl, path, NULL) != 1) {
        return error_set(err, ST_BAD_CONFIG, "--cacert %s: expected certificates in PEM: %s", path,
                         reason());
    }
    return ST_OK;
}

static enum status use_cert(SSL_CTX *ssl, const char *cert, const char *key, struct error *err) {
    const char *key_path = key ? key : cert;
    if (!cert) {
        return ST_OK;
    }
    if (SSL_CTX_use_certificate_chain_file(ssl, cert) != 1) {
        return error_set(err, ST_BAD_CONFIG, "--cert %s: expected a certificate in PEM: %s", cert,
                         reason());
    }
    if (SSL_CTX_use_PrivateKey_file(ssl, key_path, SSL_FILETYPE_PEM) != 1) {
        return error_set(err, ST_BAD_CONFIG,
                         "--%s %s: expected the private key of --cert, in PEM: %s",
                         key ? "key" : "cert", key_path, reason());
    }
    return ST_OK;
}

static enum status configure(SSL_CTX *ssl, const struct tls_client_options *options,
                             struct error *err) {
    SSL_CTX_set_min_proto_version(ssl, TLS1_2_VERSION);
    SSL_CTX_set_mode(ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_verify(ssl, options->insecure ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, NULL);
    enum status st = options->insecure ? ST_OK : use_cacert(ssl, options->cacert, err);
    return st == ST_OK ? use_cert(ssl, options->cert, options->key, err) : st;
}

/* ---- settings -------------------------------------------------------------------------------- */

/* Options that would do nothing are most likely a mistake in the URL. */
enum status tls_client_check(const struct tls_client_options *options, const struct client_url *url,
                             struct error *err) {
    const char *given = options->cacert     ? "cacert"
                        : options->cert     ? "cert"
                        : options->key      ? "key"
                        : options->insecure ? "insecure"
                                            : NULL;
    if (given && !url->is_tls) {
        return error_set(err, ST_BAD_CONFIG, "--%s is for https://HOST:PORT, not for %s", given,
                         url->text.ptr);
    }
    return options->key && !options->cert ? error_set(err, ST_BAD_CONFIG, "--key needs --cert FILE")
                                          : ST_OK;
}

enum status tls_client_new(const struct tls_client_options *options, const struct client_url *url,
                           struct tls_client **out, struct error *err) {
    *out = NULL;
    if (!url->is_tls) {
        return ST_OK;
    }
    ERR_clear_error();
    struct tls_client *client = calloc(1, sizeof(*client));
    if (client) {
        client->ssl = SSL_CTX_new(TLS_client_method());
        client->bio = tls_transport_bio_method();
    }
    enum status st = client && client->ssl && client->bio
                         ? configure(client->ssl, options, err)
                         : error_set(err, ST_NO_MEMORY, "no memory for TLS");
    if (st != ST_OK) {
        tls_client_free(client);
        return st;
    }
    *out = client;
    return ST_OK;
}

void tls_client_free(struct tls_client *client) {
    if (client) {
        SSL_CTX_free(client->ssl);
        BIO_meth_free(client->bio);
        free(client);
    }
}
