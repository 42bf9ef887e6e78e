/* What every subcommand does first: read its arguments, or show its help, or say what is wrong with
 * them. */
#ifndef SLUICE_CLI_COMMAND_H
#define SLUICE_CLI_COMMAND_H

#include "cli/commands.h"
#include "cli/options.h"

enum { COMMAND_GO_ON = -1 };

/* Reads the arguments into `values` (the command's struct); see options_read for what borrows from
 * what. Returns: COMMAND_GO_ON, or the exit code to end with: help was printed, or what is wrong
 * was said on standard error. */
int command_begin(const struct option_set *set, int argc, char **argv, void *values,
                  struct arena *arena);
/* The same, for who must know afterwards what was given: options->given says. */
int command_begin_with(struct options *options, const struct option_set *set, int argc, char **argv,
                       void *values, struct arena *arena);
/* Says on standard error what is wrong with the arguments, and how to see the help.
 * Returns: EXIT_CODE_USAGE. */
int command_usage_error(const struct option_set *set, const struct error *err);

#endif
