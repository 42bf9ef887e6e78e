/* The subcommands: one function each, in a file of its own. program/main.c picks one; each reads
 * its own arguments. It refuses to hold anything that two commands share.
 *
 * argv[0] is the subcommand's name. Returns: the exit code. */
#ifndef SLUICE_PROGRAM_OPTIONS_COMMANDS_H
#define SLUICE_PROGRAM_OPTIONS_COMMANDS_H

enum exit_code {
    EXIT_CODE_OK = 0,
    EXIT_CODE_FAILED =
        1,               /* what was asked for could not be done; the reason is on standard error */
    EXIT_CODE_USAGE = 2, /* flags, arguments or a configuration file that can't be understood */
};

int cli_serve(int argc, char **argv);
int cli_pick(int argc, char **argv);
int cli_infer(int argc, char **argv);
int cli_ping(int argc, char **argv);
int cli_bench(int argc, char **argv);

#endif
