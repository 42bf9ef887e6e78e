/* The options of `sluice ping`: the option table, and the texts of its `--help`. */
#include "program/commands/ping_settings.h"

#include <stddef.h>

#include "program/options/command.h"
#include "program/requests/tls_client.h"

static const struct option options[] = {
#define OPTION(field, name, alias, type, value, unit, min, max, group, help)                       \
    {(name), (alias), OPTION_##type, (value), (unit),                                              \
     (min),  (max),   (group),       (help),  offsetof(struct ping_settings, field)},
#include "program/commands/ping.def"
#undef OPTION
};
_Static_assert(sizeof(options) / sizeof(*options) <= OPTIONS_MAX, "raise OPTIONS_MAX");

static const char about[] =
    "Asks a server whether it is there, again and again, as ping does: a line for each answer with "
    "the time it took, and at the end how many were sent, answered and lost.";

static const char epilog[] =
    "Examples\n"
    "  sluice ping tcp://127.0.0.1:9000\n"
    "  sluice ping -c 5 -i 200ms http://127.0.0.1:8000\n"
    "  sluice ping -c 1 -q -W 2s unix:///run/digits.sock && echo there\n"
    "  sluice ping --json -c 100 -i 10ms tcp://127.0.0.1:9000 | jq .time_ms\n"
    "\n"
    "Exit codes: 0 at least one ping was answered, 1 none was, 2 arguments that can't be "
    "understood.\n";

static const struct option_hint hints[] = {
    {"w", "write -c N for so many pings, -W TIME for how long each may take"},
    {"deadline", "write -c N for so many pings, -W TIME for how long each may take"},
    {"url", "the URL is the argument"},
    {NULL, NULL},
};

static const struct option_set set = {
    .command = "sluice ping",
    .usage = "[FLAGS] URL",
    .about = about,
    .epilog = epilog,
    .options = options,
    .n_options = sizeof(options) / sizeof(*options),
    .hints = hints,
};

int ping_settings_read(int argc, char **argv, struct arena *arena, struct ping_settings *out) {
    struct error err = {0};
    *out = (struct ping_settings){0};
    int code = command_parse_args(&set, argc, argv, out, arena);
    if (code != COMMAND_CONTINUE) {
        return code;
    }
    struct tls_client_options tls = {out->cacert, out->cert, out->key, out->insecure};
    enum status status = client_url_parse(arena, str_of(out->url), &out->server, &err);
    if (status == ST_OK) {
        status = tls_client_check(&tls, &out->server, &err);
    }
    if (status == ST_OK && out->metadata.n > 0 && out->server.protocol != CLIENT_GRPC) {
        status = error_set(&err, ST_BAD_CONFIG, "--metadata is for gRPC, and %s speaks %s",
                           out->url, command_protocol_name(out->server.protocol));
    }
    return status == ST_OK ? COMMAND_CONTINUE : command_usage_error(&set, &err);
}
