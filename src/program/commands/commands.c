/* `sluice COMMAND`, and the help on all commands. */
#include "program/commands/commands.h"

#include <stdio.h>
#include <string.h>

#include "core/base/suggest.h"
#include "program/options/exit_code.h"
#include "program/version/version.h"

struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *about;
};

static const struct command commands[] = {
#define COMMAND(name, about) {#name, cli_##name, about},
#include "program/commands/commands.def"
#undef COMMAND
};
enum { N_COMMANDS = sizeof(commands) / sizeof(*commands) };

static const struct command *find_command(const char *name) {
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(commands[i].name, name) == 0) {
            return &commands[i];
        }
    }
    return NULL;
}

static int unknown_command(const char *name) {
    struct suggestion suggestion = {0};
    for (size_t i = 0; i < N_COMMANDS; i++) {
        suggest_consider(&suggestion, str_of(name), str_of(commands[i].name));
    }
    suggest_consider(&suggestion, str_of(name), STR("--version"));
    suggest_consider(&suggestion, str_of(name), STR("--help"));
    fprintf(stderr, "sluice: unknown command %s", name);
    if (suggestion.best.ptr) {
        fprintf(stderr, "; did you mean %.*s?", STR_ARG(suggestion.best));
    }
    fputs("\nTry: sluice --help\n", stderr);
    return EXIT_CODE_USAGE;
}

static int print_help(FILE *out) {
    fputs("usage: sluice COMMAND …\n\nA model server, an endpoint picker, and their client.\n\n",
          out);
    for (size_t i = 0; i < N_COMMANDS; i++) {
        fprintf(out, "  %-12s %s\n", commands[i].name, commands[i].about);
    }
    fputs("\n  sluice COMMAND --help   what a command does, and its flags\n"
          "  sluice --version        the version of this program\n"
          "\nExit codes: 0 ok, 1 failed, 2 arguments that can't be understood.\n",
          out);
    return out == stdout ? EXIT_CODE_OK : EXIT_CODE_USAGE;
}

/* `sluice help serve TOPIC` is `sluice serve --help TOPIC`. */
static int help(int argc, char **argv) {
    if (argc < 3) {
        return print_help(stdout);
    }
    const struct command *command = find_command(argv[2]);
    char dashes[] = "--help";
    char *arguments[] = {argv[2], dashes, argc > 3 ? argv[3] : NULL, NULL};
    return command ? command->run(argc > 3 ? 3 : 2, arguments) : unknown_command(argv[2]);
}

/* Returns: the program was called by this name, by a link or a copy. */
static bool is_called(const char *name, int argc, char **argv) {
    const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
    return argc > 0 && strcmp(slash ? slash + 1 : argv[0], name) == 0;
}

int commands_run(int argc, char **argv) {
    if (is_called("tritonserver", argc, argv)) {
        return cli_tritonserver(argc, argv);
    }
    if (argc < 2) {
        return print_help(stderr);
    }
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        version_print();
        return EXIT_CODE_OK;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        return print_help(stdout);
    }
    if (strcmp(name, "help") == 0) {
        return help(argc, argv);
    }
    const struct command *command = find_command(name);
    return command ? command->run(argc - 1, argv + 1) : unknown_command(name);
}
