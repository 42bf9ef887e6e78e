/* The exit codes of all subcommands. */
#ifndef SLUICE_PROGRAM_OPTIONS_EXIT_CODE_H
#define SLUICE_PROGRAM_OPTIONS_EXIT_CODE_H

enum exit_code {
    EXIT_CODE_OK = 0,
    EXIT_CODE_FAILED = 1, /* the operation failed; the reason is on standard error */
    EXIT_CODE_USAGE = 2,  /* invalid flags, arguments or configuration file */
};

#endif
