/* Model files inside a directory. */
#include "common/path.h"

#include <stdio.h>
#include <sys/stat.h>

const char *model_file_path(const char *path, const char *name, char *text, size_t n_bytes) {
    struct stat found;
    if (stat(path, &found) != 0 || !S_ISDIR(found.st_mode)) {
        return path;
    }
    int n = snprintf(text, n_bytes, "%s/%s", path, name);
    return n > 0 && (size_t)n < n_bytes ? text : path;
}
