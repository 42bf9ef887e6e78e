/* The subcommands: one function each, in a file of its own. program/main.c selects one; each parses
 * its own arguments.
 *
 * argv[0] is the subcommand's name. Returns: the exit code. */
#ifndef SLUICE_PROGRAM_OPTIONS_COMMANDS_H
#define SLUICE_PROGRAM_OPTIONS_COMMANDS_H

enum exit_code {
    EXIT_CODE_OK = 0,
    EXIT_CODE_FAILED = 1, /* the operation failed; the reason is on standard error */
    EXIT_CODE_USAGE = 2,  /* invalid flags, arguments or configuration file */
};

int cli_serve(int argc, char **argv);
int cli_pick(int argc, char **argv);
int cli_infer(int argc, char **argv);
int cli_ping(int argc, char **argv);
int cli_bench(int argc, char **argv);

#endif
