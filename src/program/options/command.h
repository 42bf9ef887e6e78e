/* What every subcommand does first: read its arguments, or show its help, or say what is wrong with
 * them. */
#ifndef SLUICE_PROGRAM_OPTIONS_COMMAND_H
#define SLUICE_PROGRAM_OPTIONS_COMMAND_H

#include "client/url.h"
#include "program/options/commands.h"
#include "program/options/options.h"

enum { COMMAND_CONTINUE = -1 };

/* Reads the arguments into `values` (the command's struct); see options_read for what borrows from
 * what. Returns: COMMAND_CONTINUE, or the exit code to end with: help was printed, or what is wrong
 * was said on standard error. */
int command_parse_args(const struct option_set *set, int argc, char **argv, void *values,
                       struct arena *arena);
/* The same, for who must know afterwards what was given: options->given says. */
int command_parse_args_with(struct options *options, const struct option_set *set, int argc,
                            char **argv, void *values, struct arena *arena);
/* Says on standard error what is wrong with the arguments, and how to see the help.
 * Returns: EXIT_CODE_USAGE. */
int command_usage_error(const struct option_set *set, const struct error *err);

/* "HTTP", "gRPC", "MIP" */
const char *command_protocol_name(enum client_protocol protocol);
/* The protocols that a group of options is for: "HTTP and gRPC" of "Request over HTTP and gRPC".
 * Returns: NULL where it names none. */
const char *command_group_protocols(const char *group);
/* Are options of that group for servers of that protocol? Those that name none are. */
bool command_group_is_for(const char *group, enum client_protocol protocol);

#endif
