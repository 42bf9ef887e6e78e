/* Argument parsing and usage errors that every subcommand shares. */
#include "program/options/command.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "program/options/help.h"

int command_usage_error(const struct option_set *set, const struct error *err) {
    fprintf(stderr, "%s: %s\nTry: %s --help\n", set->command, err->text, set->command);
    return EXIT_CODE_USAGE;
}

static int print_help(const struct option_set *set, const char *topic, struct arena *arena) {
    struct error err = {0};
    struct buf out;
    buf_init(&out, arena, 4096);
    if (!topic) {
        help_print(&out, set, help_style_of(stdout));
    } else if (help_print_topic(&out, set, topic, help_style_of(stdout), &err) != ST_OK) {
        return command_usage_error(set, &err);
    }
    if (fwrite(out.data, 1, out.len, stdout) != out.len || fflush(stdout) != 0) {
        return EXIT_CODE_FAILED;
    }
    return EXIT_CODE_OK;
}

int command_parse_args_with(struct options *options, const struct option_set *set, int argc,
                            char **argv, void *values, struct arena *arena) {
    struct error err = {0};
    if (options_wants_help(argc, argv)) {
        return print_help(set, options_help_topic(argc, argv), arena);
    }
    enum status status = options_init(options, set, values, arena, &err);
    if (status == ST_OK) {
        status = options_read(options, argc, argv, &err);
    }
    return status == ST_OK ? COMMAND_CONTINUE : command_usage_error(set, &err);
}

int command_parse_args(const struct option_set *set, int argc, char **argv, void *values,
                       struct arena *arena) {
    struct options options;
    return command_parse_args_with(&options, set, argc, argv, values, arena);
}

int command_write_out(const char *command, const struct buf *out) {
    if (fwrite(out->data, 1, out->len, stdout) == out->len && fflush(stdout) == 0) {
        return EXIT_CODE_OK;
    }
    fprintf(stderr, "%s: writing the result: %s\n", command, strerror(errno));
    return EXIT_CODE_FAILED;
}

const char *command_protocol_name(enum client_protocol protocol) {
    static const char *const NAMES[] = {
        [CLIENT_HTTP] = "HTTP", [CLIENT_GRPC] = "gRPC", [CLIENT_MIP] = "MIP"};
    return NAMES[protocol];
}

const char *command_group_protocols(const char *group) {
    const char *first = NULL;
    for (enum client_protocol protocol = CLIENT_HTTP; protocol <= CLIENT_MIP; protocol++) {
        const char *at = strstr(group, command_protocol_name(protocol));
        first = at && (!first || at < first) ? at : first;
    }
    return first;
}

bool command_group_is_for(const char *group, enum client_protocol protocol) {
    return !command_group_protocols(group) || strstr(group, command_protocol_name(protocol));
}
