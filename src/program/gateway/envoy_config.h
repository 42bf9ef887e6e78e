/* Envoy's configuration, in YAML: that of deploy/envoy/in-process.yaml, with what the settings
 * change. */
#ifndef SLUICE_PROGRAM_GATEWAY_ENVOY_CONFIG_H
#define SLUICE_PROGRAM_GATEWAY_ENVOY_CONFIG_H

#include "core/base/buf.h"
#include "program/gateway/settings.h"

/* Unix sockets of an Envoy that the gateway watches; NULL: not used. */
struct envoy_sockets {
    const char *admin;  /* of Envoy's admin interface, which has no other address */
    const char *picker; /* of the picker's pages, in place of --metrics */
};

/* Appends the configuration. `address`: where clients connect. */
void envoy_config_print(const struct gateway_settings *settings, const struct address *address,
                        const struct envoy_sockets *sockets, struct buf *out);

#endif
