/* The subcommands: one function for each row of commands.def, in a file of its own, which parses
 * its own arguments.
 *
 * argv[0] is the subcommand's name. Returns: the exit code. */
#ifndef SLUICE_PROGRAM_COMMANDS_COMMANDS_H
#define SLUICE_PROGRAM_COMMANDS_COMMANDS_H

#define COMMAND(name, about) int cli_##name(int argc, char **argv);
#include "program/commands/commands.def"
#undef COMMAND

/* Runs the subcommand that argv[1] names, or prints what --help and --version ask for; argv[0] is
 * the program. Called as `tritonserver` (by a link), the program is that subcommand. Returns: its
 * exit code; EXIT_CODE_USAGE where there is none. */
int commands_run(int argc, char **argv);

#endif
