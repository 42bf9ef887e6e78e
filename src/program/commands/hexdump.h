/* A dump of bytes: offset, sixteen bytes in hexadecimal, and their ASCII characters. */
#ifndef SLUICE_PROGRAM_COMMANDS_HEXDUMP_H
#define SLUICE_PROGRAM_COMMANDS_HEXDUMP_H

#include "core/base/buf.h"

/* Appends the lines of `bytes`, which begin at `offset` of the whole. */
void hexdump_print(struct buf *out, struct str bytes, uint64_t offset);

#endif
