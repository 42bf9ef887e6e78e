/* Fingerprints of a model's files. The order of directory entries is arbitrary, so their hashes are
 * added. */
#include "serve/config/fingerprint.h"

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_DEPTH = 16 }; /* a symbolic link may form a cycle */

static uint64_t hash_mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ (hash >> 29);
}

static uint64_t hash_text(const char *text) {
    uint64_t hash = 1;
    for (; *text; text++) {
        hash = hash_mix(hash, (unsigned char)*text);
    }
    return hash;
}

static uint64_t hash_file(const char *name, const struct stat *info) {
    uint64_t hash = hash_mix(hash_text(name), (uint64_t)info->st_ino);
    hash = hash_mix(hash, (uint64_t)info->st_mode);
    if (S_ISDIR(info->st_mode)) { /* a directory's own time and size change with hidden entries
                                     too */
        return hash;
    }
    hash = hash_mix(hash, (uint64_t)info->st_size);
    hash = hash_mix(hash, (uint64_t)info->st_mtim.tv_sec);
    return hash_mix(hash, (uint64_t)info->st_mtim.tv_nsec);
}

static uint64_t hash_tree(const char *path, const char *name, int depth);

static uint64_t hash_directory(const char *path, int depth) {
    uint64_t sum = 0;
    DIR *dir = depth < MAX_DEPTH ? opendir(path) : NULL;
    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir)) {
        char inner[PATH_MAX];
        bool fits =
            (size_t)snprintf(inner, sizeof(inner), "%s/%s", path, entry->d_name) < sizeof(inner);
        if (fits && entry->d_name[0] != '.') {
            sum += hash_tree(inner, entry->d_name, depth + 1);
        }
    }
    if (dir) {
        closedir(dir);
    }
    return sum;
}

static uint64_t hash_tree(const char *path, const char *name, int depth) {
    struct stat info;
    if (stat(path, &info) != 0) {
        return 0;
    }
    uint64_t hash = hash_file(name, &info);
    return S_ISDIR(info.st_mode) ? hash_mix(hash, hash_directory(path, depth)) : hash;
}

uint64_t fingerprint_of(const char *path) {
    uint64_t hash = hash_tree(path, "", 0);
    struct stat info;
    return hash == 0 && stat(path, &info) == 0 ? 1 : hash;
}
