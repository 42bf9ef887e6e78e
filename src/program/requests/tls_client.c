/* From the files of a command line to OpenSSL's settings. */
#include "program/requests/tls_client.h"

#include <openssl/err.h>
#include <stdlib.h>

#include "program/requests/tls_transport.h"

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
        return error_set(err, ST_BAD_CONFIG,
                         "--%s is for https://HOST:PORT and grpcs://HOST:PORT, not for %s", given,
                         url->text.ptr);
    }
    return options->key && !options->cert ? error_set(err, ST_BAD_CONFIG, "--key needs --cert FILE")
                                          : ST_OK;
}

struct tls_peer_options tls_client_files(const struct tls_client_options *options) {
    return (struct tls_peer_options){.ca = {"--cacert", options->cacert},
                                     .cert = {"--cert", options->cert},
                                     .key = {"--key", options->key},
                                     .insecure = options->insecure};
}

enum status tls_client_new(const struct tls_client_options *options, const struct client_url *url,
                           struct tls_client **out, struct error *err) {
    *out = NULL;
    if (!url->is_tls) {
        return ST_OK;
    }
    struct tls_peer_options files = tls_client_files(options);
    ERR_clear_error();
    struct tls_client *client = calloc(1, sizeof(*client));
    if (client) {
        client->ssl = SSL_CTX_new(TLS_client_method());
        client->bio = tls_transport_bio_method();
    }
    enum status st = client && client->ssl && client->bio
                         ? tls_peer_configure(client->ssl, &files, err)
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
