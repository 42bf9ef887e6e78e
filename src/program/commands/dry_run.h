/* What --dry-run prints of a request: its bytes, and a command that sends them, for a POSIX shell.
 * The commands are made from the request's own bytes, so that both are the same. */
#ifndef SLUICE_PROGRAM_COMMANDS_DRY_RUN_H
#define SLUICE_PROGRAM_COMMANDS_DRY_RUN_H

#include "client/v2.h"
#include "core/base/buf.h"
#include "program/requests/tls_client.h"

/* Appends a dump in the form of hexdump -C: offset, sixteen bytes in hexadecimal, and their ASCII
 * characters. `bytes` begin at `offset` of the whole. */
void hexdump_print(struct buf *out, struct str bytes, uint64_t offset);

/* Appends the curl command and a line break. The body is read from `body_file`; NULL: it is part of
 * the command, as text if possible, else through printf. The options of `tls` have curl's names. */
void curl_command_print(struct buf *out, const struct client_url *url,
                        const struct tls_client_options *tls, const struct client_request *request,
                        const char *body_file);

/* Appends the TLS options of curl. */
void curl_tls_print(struct buf *out, const struct tls_client_options *tls);

/* A part of a packet: bytes, and the file with exactly these bytes; NULL: none. */
struct packet_part {
    struct str bytes;
    const char *file;
};

/* Appends the command that sends the packet over a stream socket and shows the reply, with nc
 * (OpenBSD's, whose -N closes the sending side) and od, and a line break. The packet is read from
 * `packet_file`; NULL: its parts are read from their files, or written by printf. */
void packet_command_print(struct buf *out, const struct client_url *url,
                          const struct packet_part *parts, size_t n, const char *packet_file);
/* The number of bytes without a file. */
uint64_t packet_command_inline_bytes(const struct packet_part *parts, size_t n);

#endif
