/* Words of a POSIX shell, for commands that a person copies and runs. */
#ifndef SLUICE_PROGRAM_REQUESTS_SHELL_H
#define SLUICE_PROGRAM_REQUESTS_SHELL_H

#include "core/base/buf.h"

/* Bytes up to so many are part of a command; more are left to a file. */
enum { SHELL_MAX_INLINE = 16384 };

/* Appends `text` (without a NUL byte) as one word. */
void shell_word_print(struct buf *out, struct str text);
/* Appends the `printf` that writes `bytes`, which may be any: what is not plain ASCII in octal. */
void shell_printf_print(struct buf *out, struct str bytes);

#endif
