/* Text for people: `--help` of a command from its table of options, wrapped and aligned, coloured
 * only on a terminal. It refuses to know what a command does. */
#ifndef SLUICE_PROGRAM_OPTIONS_HELP_H
#define SLUICE_PROGRAM_OPTIONS_HELP_H

#include <stdbool.h>
#include <stdio.h>

#include "core/base/buf.h"
#include "program/options/options.h"

struct help_style {
    unsigned columns; /* 80 to 100 */
    bool colour;
};

/* What suits `file`: the terminal's width, and colours on a terminal unless NO_COLOR is set. */
struct help_style help_style_of(FILE *file);

/* Wraps `text` at spaces; a line break in it begins a new paragraph, behind an empty line. The
 * first line begins at column `at` of the line that is being written, the others are indented by
 * `indent`; ends without a line break. */
void help_wrap(struct buf *out, const char *text, unsigned at, unsigned indent, unsigned columns);
/* Writes the heading in bold. */
void help_heading(struct buf *out, const char *text, struct help_style style);
/* The whole page of a command. */
void help_print(struct buf *out, const struct option_set *set, struct help_style style);

#endif
