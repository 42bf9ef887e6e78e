/* TLS for the commands: settings made of the command line. */
#include "program/requests/tls_client.h"

/* Options without effect are most likely a mistake in the URL. */
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

enum status tls_client_new(const struct tls_client_options *options, const struct client_url *url,
                           struct client_tls **out, struct error *err) {
    const struct client_tls_options made = {.files = {.ca = {"--cacert", options->cacert},
                                                      .cert = {"--cert", options->cert},
                                                      .key = {"--key", options->key},
                                                      .insecure = options->insecure},
                                            .is_http2 = url->protocol == CLIENT_GRPC};
    *out = NULL;
    return url->is_tls ? client_tls_new(&made, out, err) : ST_OK;
}
