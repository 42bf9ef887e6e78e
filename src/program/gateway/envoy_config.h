/* Envoy's configuration, in YAML: that of deploy/envoy/in-process.yaml, with what the settings
 * change. */
#ifndef SLUICE_PROGRAM_GATEWAY_ENVOY_CONFIG_H
#define SLUICE_PROGRAM_GATEWAY_ENVOY_CONFIG_H

#include "core/base/buf.h"
#include "program/gateway/settings.h"

/* Unix sockets and files of an Envoy that the gateway watches; NULL: not used. */
struct envoy_sockets {
    const char *admin;   /* of Envoy's admin interface, which has no other address */
    const char *picker;  /* of the picker's pages, in place of --metrics */
    const char *answers; /* of the gateway's answers for all endpoints */
    /* Files of secrets (envoy_config_print_cert, _client_ca), and the folder in which a renamed
     * file makes Envoy read the files that they name again. */
    const char *tls_cert, *tls_client_ca, *folder;
};

/* Appends the secret of --http-tls-cert, or of --http-tls-client-ca. */
void envoy_config_print_cert(const struct gateway_settings *settings,
                             const struct envoy_sockets *sockets, struct buf *out);
void envoy_config_print_client_ca(const struct gateway_settings *settings,
                                  const struct envoy_sockets *sockets, struct buf *out);

/* Appends the configuration. `address`: where clients connect. */
void envoy_config_print(const struct gateway_settings *settings, const struct address *address,
                        const struct envoy_sockets *sockets, struct buf *out);

#endif
