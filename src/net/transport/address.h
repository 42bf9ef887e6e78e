/* Where a listener listens or a client connects: "HOST:PORT", "[v6]:PORT", ":PORT" (all addresses),
 * "PORT" is refused, "unix:/path". Port 0 lets the system choose. */
#ifndef SLUICE_NET_TRANSPORT_ADDRESS_H
#define SLUICE_NET_TRANSPORT_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>

#include "core/base/status.h"
#include "core/base/str.h"

struct address {
    struct sockaddr_storage storage;
    socklen_t len;
};

enum { ADDRESS_TEXT_BYTES = 128 };

/* Numeric addresses and "localhost". Returns: ST_BAD_CONFIG saying what is wrong and what is
 * right. */
enum status address_parse(struct str text, struct address *out, struct error *err);
/* "127.0.0.1:8000", "[::1]:8000", "unix:/path". Returns: `out`. */
const char *address_print(const struct address *address, char out[ADDRESS_TEXT_BYTES]);
/* Is it "unix:/path"? False of zeroed memory. */
bool address_is_unix(const struct address *address);
/* Removes the file of a Unix socket; another address has none. Its listener does so as it closes:
 * this is for an end without that. */
void address_unlink(const struct address *address);

#endif
