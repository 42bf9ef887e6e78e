/* Words of a POSIX shell, for commands that a user copies and runs. */
#ifndef SLUICE_PROGRAM_REQUESTS_SHELL_H
#define SLUICE_PROGRAM_REQUESTS_SHELL_H

#include "core/base/buf.h"

/* The most bytes that are part of a command; more are in a file. */
enum { SHELL_MAX_INLINE = 16384 };

/* Appends `text` (without a NUL byte) as one word. */
void shell_word_print(struct buf *out, struct str text);
/* Appends the `printf` command that writes `bytes`, which may have any value: octal unless plain
 * ASCII. */
void shell_printf_print(struct buf *out, struct str bytes);

#endif
