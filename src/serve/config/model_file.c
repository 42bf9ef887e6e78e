/* A link is followed by opening the file; its real path is checked afterwards. */
#include "serve/config/config.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/num.h"
#include "core/base/regular_file.h"

/* The path of the opened file, without symbolic links, relative to the directory. Returns: NULL
 * when it is not in the directory, or not known. */
static const char *path_inside(FILE *file, struct str directory, char opened[PATH_MAX]) {
    char text[PATH_MAX];
    snprintf(text, sizeof(text), "/proc/self/fd/%d", fileno(file));
    ssize_t n = readlink(text, opened, PATH_MAX - 1);
    snprintf(text, sizeof(text), "%.*s", STR_ARG(directory));
    char *real = n > 0 ? realpath(text, NULL) : NULL;
    size_t len = real ? strlen(real) : 0;
    opened[n > 0 ? n : 0] = '\0';
    bool inside = real && strncmp(opened, real, len) == 0 && opened[len] == '/';
    free(real);
    return inside ? opened + len + 1 : NULL;
}

static bool is_public(const char *path) {
    struct str rest = str_of(path);
    struct str first = str_cut(&rest, '/');
    uint64_t number;
    return rest.ptr ? !num_parse_u64(first, &number) : !str_is(first, "config.pbtxt");
}

FILE *model_file_open(const struct model_config *config, struct str directory, const char *path,
                      const char **reason) {
    char opened[PATH_MAX];
    FILE *file = regular_file_open(path, reason);
    if (!file || !config || config->files == MODEL_FILES_ALL) {
        return file;
    }
    const char *inside =
        config->files == MODEL_FILES_PUBLIC ? path_inside(file, directory, opened) : NULL;
    if (!inside || !is_public(inside)) {
        fclose(file);
        *reason = "a configuration given by a request may name only files in the model's "
                  "directory, links included, but not config.pbtxt and files of a version; or "
                  "files that the request brings";
        errno = EINVAL;
        return NULL;
    }
    return file;
}
