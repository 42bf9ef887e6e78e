/* Preloaded, it lets no thread be started while the file $NO_THREADS exists, or after the first
 * $MOST_THREADS: as RLIMIT_NPROC and pids.max do, of which the first does not hold for root. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

static atomic_int n_started;

int pthread_create(pthread_t *newthread, const pthread_attr_t *attr, void *(*start_routine)(void *),
                   void *arg) {
    const char *file = getenv("NO_THREADS"), *most = getenv("MOST_THREADS");
    if ((file && access(file, F_OK) == 0) ||
        (most && atomic_fetch_add(&n_started, 1) >= strtol(most, NULL, 10))) {
        return EAGAIN;
    }
    int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    *(void **)&next = dlsym(RTLD_NEXT, "pthread_create");
    return next(newthread, attr, start_routine, arg);
}
