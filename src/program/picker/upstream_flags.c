/* Replaces upstream's flags in the arguments by ours. All are collected first: of a flag that
 * occurs twice the last one is used, as upstream, and some flags are translated together. */
#include "program/picker/upstream_flags.h"

#include <string.h>

#include "core/base/log.h"
#include "program/picker/upstream_translate.h"

static const struct upstream_row ROWS[] = {
#define UPSTREAM(name, kind, action, our_name, why) {(name), (kind), (action), (our_name), (why)},
#include "program/picker/upstream_flags.def"
#undef UPSTREAM
};

enum { N_ROWS = sizeof(ROWS) / sizeof(ROWS[0]), MOST_ADDED = N_ROWS + 8 };

/* The last value of each upstream flag; NULL: not given. */
typedef const char *given[N_ROWS];

/* ---- flags by name --------------------------------------------------------------------------- */

/* "grpc-port" is also accepted as "grpcPort", as in older releases. */
static bool is_name(struct str written, const char *name) {
    size_t at = 0;
    if (str_is(written, name)) {
        return true;
    }
    for (; *name; name++) {
        if (*name != '-') {
            char c = at < written.len ? written.ptr[at++] : '\0';
            if ((c >= 'A' && c <= 'Z' ? c | 0x20 : c) != *name) {
                return false;
            }
        }
    }
    return at == written.len;
}

/* Finds "--name", "--name=value" and Go's "-name". Returns: N_ROWS if it is none. */
static size_t find_row(const char *arg, struct str *value) {
    struct str rest = str_of(arg + (arg[0] == '-') + (arg[0] == '-' && arg[1] == '-'));
    struct str name = str_cut(&rest, '=');
    size_t i = 0;
    *value = rest;
    if (arg[0] != '-' || name.len == 0) {
        return N_ROWS;
    }
    if (arg[1] == 'v' && arg[2] >= '0' && arg[2] <= '9') { /* -v4 */
        *value = str_of(arg + 2);
        name.len = 1;
    }
    while (i < N_ROWS && !is_name(name, ROWS[i].name)) {
        i++;
    }
    return i;
}

/* Returns: the flag is ours as well as upstream's, and spelled as ours. pool-name is with
 * `kube`. */
static bool is_own(const struct upstream_row *row, const char *arg, bool kube) {
    size_t n = strlen(row->name);
    return strcmp(row->name, row->our_name) == 0 && strncmp(arg, "--", 2) == 0 &&
           strncmp(arg + 2, row->name, n) == 0 && (kube || row->action != UPSTREAM_POOL_FLAG);
}

static bool has_kube(int argc, char **argv) {
    int i = 1;
    while (i < argc && strcmp(argv[i], "--") != 0 && strcmp(argv[i], "--kube") != 0) {
        i++;
    }
    return i < argc && strcmp(argv[i], "--kube") == 0;
}

/* As Go's strconv.ParseBool. */
static bool parse_bool(struct str text, bool *out) {
    static const char *const words[] = {"0", "f", "F", "false", "FALSE", "False",
                                        "1", "t", "T", "true",  "TRUE",  "True"};
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
        if (str_is(text, words[i])) {
            *out = i >= sizeof(words) / sizeof(*words) / 2;
            return true;
        }
    }
    return false;
}

/* ---- collecting ------------------------------------------------------------------------------ */

static enum status take_switch(const struct upstream_row *row, struct str value, const char **out,
                               struct error *err) {
    bool yes = true;
    if (value.ptr && !parse_bool(value, &yes)) {
        return error_set(err, ST_BAD_CONFIG, "--%s: expected true or false, got \"%.*s\"",
                         row->name, STR_ARG(value));
    }
    *out = yes ? "true" : "false";
    return ST_OK;
}

/* Copies our flags, and stores the last value of each upstream flag, and of switches that are both:
 * they may have a value. */
static enum status split_arguments(struct upstream_flags *out, given values, int argc, char **argv,
                                   struct error *err) {
    enum status st = ST_OK;
    bool kube = has_kube(argc, argv);
    int i = 1;
    for (; i < argc && strcmp(argv[i], "--") != 0 && st == ST_OK; i++) {
        struct str value;
        size_t row = find_row(argv[i], &value);
        bool is_ours = row == N_ROWS || is_own(&ROWS[row], argv[i], kube);
        if (row == N_ROWS || (is_ours && ROWS[row].kind != UPSTREAM_IS_SWITCH)) {
            out->argv[out->argc++] = argv[i];
            continue;
        }
        out->used = out->used || !is_ours;
        if (ROWS[row].kind == UPSTREAM_IS_SWITCH) {
            st = take_switch(&ROWS[row], value, &values[row], err);
        } else if (value.ptr) {
            values[row] = value.ptr; /* NUL-terminated, as the argument is */
        } else if (i + 1 < argc) {
            values[row] = argv[++i];
        } else {
            st = error_set(err, ST_BAD_CONFIG, "--%s needs a value", ROWS[row].name);
        }
    }
    for (; i < argc; i++) {
        out->argv[out->argc++] = argv[i];
    }
    return st;
}

/* ---- translation ----------------------------------------------------------------------------- */

/* Returns: our flag was given. */
static bool has_flag(const struct upstream_flags *out, const char *flag) {
    size_t n = strlen(flag);
    for (int i = 1; i < out->argc && strcmp(out->argv[i], "--") != 0; i++) {
        const char *arg = out->argv[i];
        if (strncmp(arg, "--", 2) == 0 && strncmp(arg + 2, flag, n) == 0 &&
            (arg[2 + n] == '\0' || arg[2 + n] == '=')) {
            return true;
        }
    }
    return false;
}

static const char *value_of(given values, enum upstream_action action) {
    size_t i = 0;
    while (i < N_ROWS && ROWS[i].action != action) {
        i++;
    }
    return i < N_ROWS ? values[i] : NULL;
}

/* TLS is on unless it is switched off: with the files of --cert-path, or with a self-signed
 * certificate. Flags of ours have precedence. */
static void add_tls(struct upstream_translation *self, given values) {
    const char *secure = value_of(values, UPSTREAM_SECURE_SERVING),
               *folder = value_of(values, UPSTREAM_CERT_PATH);
    if ((secure && strcmp(secure, "false") == 0) || has_flag(self->out, "grpc-tls-cert") ||
        has_flag(self->out, "grpc-tls-self-signed")) {
        return;
    }
    if (!folder || !*folder) {
        upstream_add_flag(self, "grpc-tls-self-signed", "");
        return;
    }
    upstream_add_tls_files(self, "grpc", folder);
}

static void add_defaults(struct upstream_translation *self, given values) {
    static const char *const places[][2] = {
        {"grpc", ":9002"}, {"health", ":9003"}, {"metrics", ":9090"}};
    add_tls(self, values);
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        if (!has_flag(self->out, places[i][0])) {
            upstream_add_flag(self, places[i][0], places[i][1]);
        }
    }
}

static enum status translate_flags(struct upstream_translation *self, given values,
                                   struct error *err) {
    enum status st = ST_OK;
    for (size_t i = 0; i < N_ROWS && st == ST_OK; i++) {
        /* Of the two flags for the log level the exact one has precedence, as upstream. */
        bool overruled =
            ROWS[i].action == UPSTREAM_VERBOSITY && value_of(values, UPSTREAM_ZAP_LEVEL);
        if (values[i] && !overruled) {
            st = upstream_translate_flag(self, &ROWS[i], values[i], err);
            st = st == ST_OK ? st : error_prefix(err, "--%s", ROWS[i].name);
        }
    }
    if (st == ST_OK && self->out->used) {
        add_defaults(self, values);
        self->out->config = upstream_config_print(&self->config, self->arena);
    }
    return st;
}

enum status upstream_flags_read(int argc, char **argv, struct arena *arena,
                                struct upstream_flags *out, struct error *err) {
    given values = {NULL};
    struct upstream_translation self = {.arena = arena, .out = out};
    *out = (struct upstream_flags){.argc = 1};
    out->argv = arena_calloc(arena, (size_t)argc + MOST_ADDED + 1, sizeof(*out->argv));
    self.notes = arena_calloc(arena, N_ROWS, sizeof(*self.notes));
    out->argv[0] = argv[0];
    out->notes = self.notes;
    upstream_config_init(&self.config, arena);
    enum status st = split_arguments(out, values, argc, argv, err);
    return st == ST_OK ? translate_flags(&self, values, err) : st;
}

void upstream_flags_log(const struct upstream_flags *flags) {
    if (flags->used) {
        log_message(LOG_INFO, "upstream flags given: upstream's defaults apply");
    }
    flag_notes_log("upstream flag ignored", flags->notes, flags->n_notes);
}
