/* Bytes for people: offset, sixteen bytes in hexadecimal, and what of them is ASCII. */
#ifndef SLUICE_PROGRAM_COMMANDS_HEXDUMP_H
#define SLUICE_PROGRAM_COMMANDS_HEXDUMP_H

#include "core/base/buf.h"

/* Appends the lines of `bytes`, the first of which is at `offset` of the whole. */
void hexdump_print(struct buf *out, struct str bytes, uint64_t offset);

#endif
