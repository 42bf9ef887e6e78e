/* For tests: a directory that is made, filled with files and removed again. */
#ifndef SLUICE_MODEL_TEST_DIR_H
#define SLUICE_MODEL_TEST_DIR_H

#include <assert.h>
#include <ftw.h>
#include <limits.h>
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

/* "DIR/NAME". `out` has room for PATH_MAX bytes. */
static inline const char *test_dir_path(const struct test_dir *dir, const char *name, char *out) {
    snprintf(out, PATH_MAX, "%s/%s", dir->path, name);
    return out;
}

/* Writes a file, with the directories on its way; a name that ends with '/' is a directory. */
static inline void test_dir_add(const struct test_dir *dir, const char *name, const char *text) {
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
        fputs(text, file);
        fclose(file);
    }
}

static inline int test_dir_remove_one(const char *path, const struct stat *info, int kind,
                                      struct FTW *where) {
    (void)info;
    (void)kind;
    (void)where;
    return remove(path);
}

static inline void test_dir_remove(const struct test_dir *dir) {
    int rc = nftw(dir->path, test_dir_remove_one, 16, FTW_DEPTH | FTW_PHYS);
    assert(rc == 0);
    (void)rc;
}

#endif
