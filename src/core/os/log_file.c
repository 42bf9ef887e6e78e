/* dup2 changes what the descriptor is, so that threads and libraries that write to it need not
 * know. */
#include "core/os/log_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

enum { LOG_FILE_MODE = 0644 };

enum status log_file_open(const char *path, struct error *err) {
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, LOG_FILE_MODE);
    if (fd < 0) {
        return error_set(err, ST_IO, "%s: %s", path, strerror(errno));
    }
    /* Threads that write meanwhile write to one file or the other. */
    bool done = dup2(fd, STDERR_FILENO) >= 0;
    int reason = errno;
    close(fd);
    return done ? ST_OK : error_set(err, ST_IO, "%s: %s", path, strerror(reason));
}
