/* Walks the folders of a process's control groups, and reads their small files. */
#include "core/os/cgroup.h"

#include <stdbool.h>
#include <stdio.h>

enum { CGROUP_PATH_BYTES = 4096, CGROUP_NAME_BYTES = 64 };

struct walk {
    const char *mount;
    const char *controller;
    cgroup_visitor *visit;
    void *user;
};

/* Returns: ptr NULL when the file cannot be read whole. */
static struct str read_path(const char *path, char out[CGROUP_FILE_BYTES]) {
    FILE *file = fopen(path, "re");
    if (!file) {
        return str_make(NULL, 0);
    }
    size_t n = fread(out, 1, CGROUP_FILE_BYTES, file);
    fclose(file);
    return n < CGROUP_FILE_BYTES ? str_make(out, n) : str_make(NULL, 0);
}

struct str cgroup_read_file(const char *folder, const char *name, char out[CGROUP_FILE_BYTES]) {
    char path[CGROUP_PATH_BYTES + CGROUP_NAME_BYTES];
    int n = snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (n < 0 || (size_t)n >= sizeof(path)) {
        return str_make(NULL, 0);
    }
    return read_path(path, out);
}

struct str cgroup_read_line(const char *folder, const char *name, char out[CGROUP_FILE_BYTES]) {
    struct str text = cgroup_read_file(folder, name, out);
    return text.ptr ? str_trim(str_cut(&text, '\n')) : text;
}

/* Visits the group `path` and its parents, up to the mount. */
static void walk_path(const struct walk *walk, enum cgroup_version version, const char *mount,
                      struct str path) {
    for (;;) {
        char folder[CGROUP_PATH_BYTES];
        int n = snprintf(folder, sizeof(folder), "%s%.*s", mount, STR_ARG(path));
        if (n < 0 || (size_t)n >= sizeof(folder)) {
            return;
        }
        walk->visit(walk->user, version, folder);
        if (path.len <= 1) {
            return;
        }
        while (path.len > 0 && path.ptr[path.len - 1] != '/') {
            path.len--;
        }
        if (path.len > 0) {
            path.len--; /* the slash itself */
        }
    }
}

static bool has_controller(struct str controllers, const char *controller) {
    while (controllers.ptr) {
        if (str_is(str_cut(&controllers, ','), controller)) {
            return true;
        }
    }
    return false;
}

/* One line "ID:CONTROLLERS:PATH"; v2's has ID 0 and no controllers. */
static void walk_line(const struct walk *walk, struct str line) {
    struct str rest = line;
    struct str id = str_cut(&rest, ':');
    struct str controllers = rest.ptr ? str_cut(&rest, ':') : rest;
    if (!rest.ptr) {
        return;
    }
    if (str_is(id, "0") && controllers.len == 0) {
        walk_path(walk, CGROUP_V2, walk->mount, rest);
        return;
    }
    if (!has_controller(controllers, walk->controller)) {
        return;
    }
    /* Mounted under all its names ("cpu,cpuacct"), or under one. */
    char folder[CGROUP_PATH_BYTES];
    snprintf(folder, sizeof(folder), "%s/%.*s", walk->mount, STR_ARG(controllers));
    walk_path(walk, CGROUP_V1, folder, rest);
    snprintf(folder, sizeof(folder), "%s/%s", walk->mount, walk->controller);
    walk_path(walk, CGROUP_V1, folder, rest);
}

void cgroup_walk(const char *proc_cgroup, const char *mount, const char *controller,
                 cgroup_visitor *visit, void *user) {
    struct walk walk = {mount, controller, visit, user};
    char text[CGROUP_FILE_BYTES];
    struct str rest = read_path(proc_cgroup, text);
    while (rest.ptr && rest.len > 0) {
        walk_line(&walk, str_cut(&rest, '\n'));
    }
}
