/* The command that sends given bytes over a stream socket and shows what comes back, for a POSIX
 * shell with nc (OpenBSD's, whose -N ends the sending side) and od. It is made from the bytes
 * themselves, so that it can't say anything else than these. */
#ifndef SLUICE_PROGRAM_COMMANDS_PACKET_COMMAND_H
#define SLUICE_PROGRAM_COMMANDS_PACKET_COMMAND_H

#include "client/url.h"
#include "core/base/buf.h"

/* A part of the packet: bytes, and the file that holds just these; NULL: none does. */
struct packet_part {
    struct str bytes;
    const char *file;
};

/* Appends the command and a line break. The whole is read from `packet_file`; NULL: parts from
 * their files, what has none through printf. */
void packet_command_print(struct buf *out, const struct client_url *url,
                          const struct packet_part *parts, size_t n, const char *packet_file);
/* The bytes that no file holds. */
uint64_t packet_command_inline_bytes(const struct packet_part *parts, size_t n);

#endif
