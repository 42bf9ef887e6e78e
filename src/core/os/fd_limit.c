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

uint64_t fd_limit(void) {
    struct rlimit limit;
    return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}

/* With `.`, `..` and the descriptor of the folder itself. */
static uint64_t count_entries(void) {
    DIR *folder = opendir("/proc/self/fd");
    uint64_t n = 0;
    while (folder && readdir(folder)) {
        n++;
    }
    if (folder) {
        closedir(folder);
    }
    return n;
}

uint64_t fd_count_open(void) {
    uint64_t n = count_entries();
    return n > 3 ? n - 3 : 0;
}

uint64_t fd_limit_left(void) {
    uint64_t limit = fd_limit();
    uint64_t n_open = count_entries(); /* three too many do no harm */
    return limit > n_open ? limit - n_open : 0;
}
