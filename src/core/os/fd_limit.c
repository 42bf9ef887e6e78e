/* The limit on descriptors. The hard limit is not raised: it is the administrator's. */
#include "core/os/fd_limit.h"

#include <dirent.h>
#include <sys/resource.h>

uint64_t fd_limit_raise(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return 0;
    }
    if (limit.rlim_cur < limit.rlim_max) {
        struct rlimit raised = {limit.rlim_max, limit.rlim_max};
        if (setrlimit(RLIMIT_NOFILE, &raised) == 0) {
            limit = raised;
        }
    }
    return limit.rlim_cur;
}

static uint64_t count_open(void) {
    DIR *folder = opendir("/proc/self/fd");
    uint64_t n = 0;
    while (folder && readdir(folder)) {
        n++; /* with those of `.`, `..` and the folder: three too many do no harm */
    }
    if (folder) {
        closedir(folder);
    }
    return n;
}

uint64_t fd_limit_left(void) {
    struct rlimit limit;
    uint64_t n_open = count_open();
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return 0;
    }
    return limit.rlim_cur > n_open ? limit.rlim_cur - n_open : 0;
}
