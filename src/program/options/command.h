/* What every subcommand does first: it parses its arguments, shows its help, or reports what is
 * wrong with them. */
#ifndef SLUICE_PROGRAM_OPTIONS_COMMAND_H
#define SLUICE_PROGRAM_OPTIONS_COMMAND_H

#include "client/connection/url.h"
#include "core/base/buf.h"
#include "program/options/exit_code.h"
#include "program/options/options.h"

enum { COMMAND_CONTINUE = -1 };

/* Parses the arguments into `values` (the command's struct); options_read says what they borrow
 * from. Returns: COMMAND_CONTINUE, or the exit code: the help was printed, or the error was
 * reported on standard error. */
int command_parse_args(const struct option_set *set, int argc, char **argv, void *values,
                       struct arena *arena);
/* As command_parse_args, with the state: options->given tells which options were set. */
int command_parse_args_with(struct options *options, const struct option_set *set, int argc,
                            char **argv, void *values, struct arena *arena);
/* Reports an error of the arguments on standard error, with a pointer to --help. Returns:
 * EXIT_CODE_USAGE. */
int command_usage_error(const struct option_set *set, const struct error *err);

/* Writes what a command has printed to standard output. Returns: EXIT_CODE_OK; EXIT_CODE_FAILED,
 * with the reason on standard error. */
int command_write_out(const char *command, const struct buf *out);

/* "HTTP", "gRPC", "MIP" */
const char *command_protocol_name(enum client_protocol protocol);
/* The protocols in the name of an option group: "HTTP and gRPC" of "Request over HTTP and gRPC".
 * Returns: NULL when it names none. */
const char *command_group_protocols(const char *group);
/* Do the options of the group apply to a server of that protocol? Groups that name no protocol
 * apply to all. */
bool command_group_is_for(const char *group, enum client_protocol protocol);

#endif
