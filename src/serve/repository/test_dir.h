/* For tests: a temporary directory with files. */
#ifndef SLUICE_SERVE_REPOSITORY_TEST_DIR_H
#define SLUICE_SERVE_REPOSITORY_TEST_DIR_H

#include <assert.h>
#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct test_dir {
    char path[PATH_MAX / 2];
};

static inline void test_dir_make(struct test_dir *dir) {
    const char *tmp = getenv("TMPDIR");
    snprintf(dir->path, sizeof(dir->path), "%s/sluice-test-XXXXXX", tmp ? tmp : "/tmp");
    char *made = mkdtemp(dir->path);
    assert(made);
    (void)made;
}

/* "DIR/NAME". `out` has PATH_MAX bytes. */
static inline const char *test_dir_path(const struct test_dir *dir, const char *name, char *out) {
    snprintf(out, PATH_MAX, "%s/%s", dir->path, name);
    return out;
}

/* Writes a file and its parent directories; a name that ends with '/' is a directory. */
static inline void test_dir_add_bytes(const struct test_dir *dir, const char *name,
                                      const char *data, size_t n_bytes) {
    char path[PATH_MAX];
    test_dir_path(dir, name, path);
    for (char *slash = strchr(path + strlen(dir->path) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0777);
        *slash = '/';
    }
    if (name[strlen(name) - 1] != '/') {
        FILE *file = fopen(path, "w");
        assert(file);
        size_t written = fwrite(data, 1, n_bytes, file);
        assert(written == n_bytes);
        (void)written;
        fclose(file);
    }
}

static inline void test_dir_add(const struct test_dir *dir, const char *name, const char *text) {
    test_dir_add_bytes(dir, name, text, strlen(text));
}

/* Removes `path` and its contents; links are not followed. */
static inline void test_dir_remove_all(const char *path) {
    DIR *dir = opendir(path);
    assert(dir);
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        char inner[PATH_MAX];
        struct stat info;
        bool inside = strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
        int len = snprintf(inner, sizeof(inner), "%s/%s", path, entry->d_name);
        assert(len > 0 && len < PATH_MAX);
        if (inside && len < PATH_MAX && lstat(inner, &info) == 0 && S_ISDIR(info.st_mode)) {
            test_dir_remove_all(inner);
        } else if (inside) {
            remove(inner);
        }
    }
    closedir(dir);
    remove(path);
}

static inline void test_dir_remove(const struct test_dir *dir) {
    test_dir_remove_all(dir->path);
}

#endif
