/* Opens regular files. */
#include "core/base/regular_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

FILE *regular_file_open(const char *path, const char **reason) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;
    if (fd >= 0 && fstat(fd, &info) == 0 && !S_ISREG(info.st_mode)) {
        *reason = S_ISDIR(info.st_mode) ? "expected a regular file, got a directory"
                                        : "expected a regular file";
        close(fd);
        errno = EINVAL;
        return NULL;
    }
    FILE *file = fd >= 0 ? fdopen(fd, "rb") : NULL;
    if (!file) {
        int why = errno;
        *reason = strerror(why);
        if (fd >= 0) {
            close(fd);
        }
        errno = why;
    }
    return file;
}
