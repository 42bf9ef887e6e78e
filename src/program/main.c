/* sluice: selects and runs the subcommand. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/suggest.h"
#include "program/options/commands.h"
#include "program/version/version.h"

/* Read by jemalloc where the program is linked with it: freed memory is returned to the system
 * within seconds, also when the process is idle. Without oversize_threshold jemalloc returns blocks
 * of 8 MiB and more at once, and the page faults of the next block take seven times as long as a
 * simple model's run over it. */
extern const char *malloc_conf;
__attribute__((visibility("default"))) const char *malloc_conf =
    "background_thread:true,max_background_threads:1,dirty_decay_ms:2000,muzzy_decay_ms:0,"
    "oversize_threshold:4294967296";

struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *about;
};

static const struct command commands[] = {
    {"serve", cli_serve, "serve models over KServe v2"},
    {"pick", cli_pick, "pick the model server for each request of a proxy"},
    {"infer", cli_infer, "send one inference request and print the answer"},
    {"ping", cli_ping, "ask a server whether it is there, and how long that takes"},
    {"bench", cli_bench, "put a model server under load and report what it did"},
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
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].about);
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

static int run(int argc, char **argv) {
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

/* Descriptors 0 to 2 that the parent process has closed become /dev/null. Else the next files that
 * are opened get their numbers: the log would be written to a client, and libuv, which never closes
 * these three, aborts when it is to close one. */
static void open_standard_descriptors(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
            open("/dev/null", fd == STDIN_FILENO ? O_RDONLY : O_WRONLY) != fd) {
            _exit(EXIT_CODE_FAILED); /* there is nowhere to say why */
        }
    }
}

int main(int argc, char **argv) {
    open_standard_descriptors();
    int code = argc < 2 ? print_help(stderr) : run(argc, argv);
    /* A failed write to a redirected output is a failure. */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        return EXIT_CODE_FAILED;
    }
    return code;
}
