/* The command that sends given bytes over a stream socket and shows the reply, for a POSIX shell
 * with nc (OpenBSD's, whose -N closes the sending side) and od. It is made from the bytes
 * themselves. */
#ifndef SLUICE_PROGRAM_COMMANDS_PACKET_COMMAND_H
#define SLUICE_PROGRAM_COMMANDS_PACKET_COMMAND_H

#include "client/connection/url.h"
#include "core/base/buf.h"

/* A part of the packet: bytes, and the file with exactly these bytes; NULL: none. */
struct packet_part {
    struct str bytes;
    const char *file;
};

/* Appends the command and a line break. The packet is read from `packet_file`; NULL: its parts are
 * read from their files, or written by printf. */
void packet_command_print(struct buf *out, const struct client_url *url,
                          const struct packet_part *parts, size_t n, const char *packet_file);
/* The number of bytes without a file. */
uint64_t packet_command_inline_bytes(const struct packet_part *parts, size_t n);

#endif
