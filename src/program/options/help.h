/* Text of --help, made of a command's option table: wrapped, aligned, and coloured only on a
 * terminal. */
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

/* Returns: the width of a terminal; `unknown` where it is not known, or `fd` is none. */
unsigned terminal_columns(int fd, unsigned unknown);

/* The style for `file`: the terminal's width, and colours on a terminal unless NO_COLOR is set. */
struct help_style help_style_of(FILE *file);

/* Appends `text`, wrapped at spaces; a line break in it begins a new paragraph after an empty line.
 * The first line begins at column `at` of the current line, the others are indented by `indent`; no
 * line break at the end. */
void help_wrap(struct buf *out, const char *text, unsigned at, unsigned indent, unsigned columns);
/* Appends the heading in bold. */
void help_heading(struct buf *out, const char *text, struct help_style style);
/* Appends the help page of a command: all options, or, when the command has most used ones, those
 * and the topics of the others. */
void help_print(struct buf *out, const struct option_set *set, struct help_style style);
/* Appends the options of a topic, which is the beginning of a group's name in any case, or all of
 * the page with "all". Returns: ST_BAD_CONFIG with the topics. */
enum status help_print_topic(struct buf *out, const struct option_set *set, const char *topic,
                             struct help_style style, struct error *err) SLUICE_MUST_USE;

#endif
