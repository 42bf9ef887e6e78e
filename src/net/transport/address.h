/* The address of a listener or a server: "HOST:PORT", "[v6]:PORT", ":PORT" (all addresses),
 * "unix:/path"; "PORT" alone is refused. Port 0 lets the system choose. */
#ifndef SLUICE_NET_TRANSPORT_ADDRESS_H
#define SLUICE_NET_TRANSPORT_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "core/base/status.h"
#include "core/base/str.h"

struct address {
    struct sockaddr_storage storage;
    socklen_t len;
};

enum { ADDRESS_TEXT_BYTES = 128 };

/* Parses numeric addresses and "localhost". Returns: ST_BAD_CONFIG with what is wrong and what is
 * expected. */
enum status address_parse(struct str text, struct address *out, struct error *err);
/* "127.0.0.1:8000", "[::1]:8000", "unix:/path". Returns: `out`. */
const char *address_print(const struct address *address, char out[ADDRESS_TEXT_BYTES]);
/* Returns: whether it is "unix:/path"; false for zeroed memory. */
bool address_is_unix(const struct address *address);
/* Returns: whether only this machine can connect to it: a loopback address or a Unix socket; false
 * for zeroed memory. */
bool address_is_local(const struct address *address);
/* Returns: 0 for a Unix socket. */
uint16_t address_port(const struct address *address);
/* Returns: a hash of the host without the port, of IPv6 of the first 64 bits, of which a host may
 * have all addresses; 0 for a Unix socket. */
uint64_t address_peer_hash(const struct address *address);
/* Removes the file of a Unix socket; no effect on other addresses. A listener does this on close;
 * this is for a process that ends without closing it. */
void address_unlink(const struct address *address);

#endif
