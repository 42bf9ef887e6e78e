/* Tests: folders that look like the mount of control groups. */
#ifndef SLUICE_CORE_OS_CGROUP_FIXTURE_H
#define SLUICE_CORE_OS_CGROUP_FIXTURE_H

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CGROUP_FIXTURE_PATH_BYTES = 512, CGROUP_FIXTURE_FILES = 4 };

struct cgroup_fixture_file {
    const char *path; /* under the mount; NULL ends a list */
    const char *text;
};

struct cgroup_fixture {
    char mount[64];
    char proc[96]; /* the file that is /proc/self/cgroup */
    const struct cgroup_fixture_file *files;
};

/* Makes the file and the folders above it. */
static inline void cgroup_fixture_write(const char *root, const char *path, const char *text) {
    char whole[CGROUP_FIXTURE_PATH_BYTES];
    snprintf(whole, sizeof(whole), "%s/%s", root, path);
    for (char *at = whole + strlen(root) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        mkdir(whole, 0700);
        *at = '/';
    }
    FILE *file = fopen(whole, "w");
    assert(file);
    assert(fputs(text, file) >= 0);
    assert(fclose(file) == 0);
}

static inline void cgroup_fixture_remove(const char *root, const char *path) {
    char whole[CGROUP_FIXTURE_PATH_BYTES];
    snprintf(whole, sizeof(whole), "%s/%s", root, path);
    assert(unlink(whole) == 0);
    for (char *at; (at = strrchr(whole, '/')) && at > whole + strlen(root);) {
        *at = '\0';
        rmdir(whole);
    }
}

/* Makes a mount with `files` (at most CGROUP_FIXTURE_FILES) and a process whose groups are `proc`.
 */
static inline void cgroup_fixture_init(struct cgroup_fixture *fixture, const char *proc,
                                       const struct cgroup_fixture_file *files) {
    snprintf(fixture->mount, sizeof(fixture->mount), "/tmp/sluice-cgroup-XXXXXX");
    assert(mkdtemp(fixture->mount));
    snprintf(fixture->proc, sizeof(fixture->proc), "%s/proc", fixture->mount);
    cgroup_fixture_write(fixture->mount, "proc", proc);
    fixture->files = files;
    for (size_t i = 0; i < CGROUP_FIXTURE_FILES && files[i].path; i++) {
        cgroup_fixture_write(fixture->mount, files[i].path, files[i].text);
    }
}

static inline void cgroup_fixture_fini(struct cgroup_fixture *fixture) {
    for (size_t i = 0; i < CGROUP_FIXTURE_FILES && fixture->files[i].path; i++) {
        cgroup_fixture_remove(fixture->mount, fixture->files[i].path);
    }
    cgroup_fixture_remove(fixture->mount, "proc");
    assert(rmdir(fixture->mount) == 0);
}

#endif
