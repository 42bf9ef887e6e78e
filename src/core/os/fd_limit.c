/* The limit on descriptors. The hard limit is not raised: it is the administrator's. */
#include "core/os/fd_limit.h"

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
