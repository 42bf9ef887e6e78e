/* The options of `sluice bench`, made from bench.def, and the plan that follows from them. */
#ifndef SLUICE_PROGRAM_LOADGEN_SETTINGS_H
#define SLUICE_PROGRAM_LOADGEN_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "program/loadgen/plan.h"
#include "program/options/options.h"
#include "program/requests/tls_client.h"

enum bench_form { BENCH_FORM_BINARY, BENCH_FORM_JSON, BENCH_FORM_RAW };
enum bench_data { BENCH_DATA_RANDOM, BENCH_DATA_ZEROS };

/* One member per row, named by its first column. */
struct bench_options {
#define OPTION(field, name, alias, type, ...) OPTION_STORE_##type field;
#include "program/loadgen/bench.def"
#undef OPTION
};

struct bench_settings {
    struct bench_options options;
    struct client_url server; /* the parsed URL */
    bool mip;                 /* the URL is one of MIP */
    struct bench_plan plan;
    struct str command_line; /* quoted for a shell */
};

static inline struct tls_client_options bench_tls_options(const struct bench_options *options) {
    return (struct tls_client_options){options->cacert, options->cert, options->key,
                                       options->insecure};
}
/* Parses the arguments. Returns: as serve_settings_read. */
int bench_settings_read(int argc, char **argv, struct arena *arena, struct bench_settings *out);

#endif
