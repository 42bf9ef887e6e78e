/* Preloaded, it makes a few calls late, as a busy machine does: for tests that expect a state too
 * early, and for programs that rely on the usual order of events. `make delays` runs the tests with
 * it; one file of them:
 *
 *     cc -shared -fPIC -O2 -o delays.so tests/lib/delays.c -ldl
 *     LD_PRELOAD=$PWD/delays.so DELAYS=sluice pytest FILE
 *
 * $DELAYS: in which programs, by the beginnings of their names: `sluice`, `python`,
 * `sluice,python`. Before and after a call, of 2000 times, it sleeps $DELAYS_SHORT (20) times for 1
 * to 30 ms and $DELAYS_LONG (1) times for 200 ms. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static bool is_on;
static uint32_t n_short = 20, n_long = 1; /* of 2000 */
static uint64_t seed;
static __thread uint64_t state; /* of each thread */

static uint32_t number_of(const char *name, uint32_t otherwise) {
    const char *text = getenv(name);
    return text ? (uint32_t)strtoul(text, NULL, 10) : otherwise;
}

__attribute__((constructor)) static void begin(void) {
    struct timespec now;
    const char *names = getenv("DELAYS"), *program = program_invocation_short_name;
    while (names && *names && !is_on) {
        size_t n = strcspn(names, ",");
        is_on = n > 0 && strncmp(program, names, n) == 0;
        names += n + (names[n] == ',');
    }
    clock_gettime(CLOCK_MONOTONIC, &now);
    seed = ((uint64_t)now.tv_sec << 30) ^ (uint64_t)now.tv_nsec ^ ((uint64_t)getpid() << 40);
    n_short = number_of("DELAYS_SHORT", n_short);
    n_long = number_of("DELAYS_LONG", n_long);
}

/* xorshift64*. */
static uint32_t random_below(uint32_t n) {
    if (state == 0) {
        state = (seed ^ (uint64_t)(uintptr_t)&state) | 1;
    }
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (uint32_t)(((state * UINT64_C(2685821657736338717)) >> 32) % n);
}

static void sleep_ms(uint32_t ms) {
    int kept = errno;
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
    errno = kept;
}

/* Called before and after each call. */
static void maybe_late(void) {
    if (!is_on) {
        return;
    }
    uint32_t drawn = random_below(2000);
    if (drawn < n_long) {
        sleep_ms(200);
    } else if (drawn < n_long + n_short) {
        sleep_ms(1 + random_below(30));
    }
}

/* Defines the function `name`, which is late or not, and calls the next one of that name. */
#define LATE(type, name, params, args)                                                             \
    type name params {                                                                             \
        static type(*next) params;                                                                 \
        if (!next) {                                                                               \
            *(void **)&next = dlsym(RTLD_NEXT, #name);                                             \
        }                                                                                          \
        maybe_late();                                                                              \
        type result = next args;                                                                   \
        maybe_late();                                                                              \
        return result;                                                                             \
    }

LATE(int, epoll_wait, (int fd, struct epoll_event *events, int n, int timeout),
     (fd, events, n, timeout))
LATE(int, epoll_pwait,
     (int fd, struct epoll_event *events, int n, int timeout, const sigset_t *mask),
     (fd, events, n, timeout, mask))
LATE(int, poll, (struct pollfd * fds, nfds_t n, int timeout), (fds, n, timeout))
LATE(int, ppoll,
     (struct pollfd * fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask),
     (fds, n, timeout, mask))
LATE(int, accept, (int fd, struct sockaddr *address, socklen_t *len), (fd, address, len))
LATE(int, accept4, (int fd, struct sockaddr *address, socklen_t *len, int flags),
     (fd, address, len, flags))
LATE(int, connect, (int fd, const struct sockaddr *address, socklen_t len), (fd, address, len))
LATE(int, close, (int fd), (fd))
LATE(int, shutdown, (int fd, int how), (fd, how))
LATE(ssize_t, read, (int fd, void *data, size_t n), (fd, data, n))
LATE(ssize_t, readv, (int fd, const struct iovec *parts, int n), (fd, parts, n))
LATE(ssize_t, recv, (int fd, void *data, size_t n, int flags), (fd, data, n, flags))
LATE(ssize_t, recvfrom,
     (int fd, void *data, size_t n, int flags, struct sockaddr *address, socklen_t *len),
     (fd, data, n, flags, address, len))
LATE(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), (fd, message, flags))
LATE(ssize_t, write, (int fd, const void *data, size_t n), (fd, data, n))
LATE(ssize_t, writev, (int fd, const struct iovec *parts, int n), (fd, parts, n))
LATE(ssize_t, send, (int fd, const void *data, size_t n, int flags), (fd, data, n, flags))
LATE(ssize_t, sendto,
     (int fd, const void *data, size_t n, int flags, const struct sockaddr *address, socklen_t len),
     (fd, data, n, flags, address, len))
LATE(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
LATE(int, eventfd_write, (int fd, eventfd_t value), (fd, value))

/* Of the two versions that glibc has of these on some machines, the newer one. */
static void *condition_function(const char *name) {
    void *found = dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2");
    return found ? found : dlsym(RTLD_NEXT, name);
}

int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex) {
    static int (*next)(pthread_cond_t *, pthread_mutex_t *);
    if (!next) {
        *(void **)&next = condition_function("pthread_cond_wait");
    }
    int result = next(condition, mutex);
    maybe_late();
    return result;
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                           const struct timespec *until) {
    static int (*next)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!next) {
        *(void **)&next = condition_function("pthread_cond_timedwait");
    }
    int result = next(condition, mutex, until);
    maybe_late();
    return result;
}

int pthread_cond_signal(pthread_cond_t *condition) {
    static int (*next)(pthread_cond_t *);
    if (!next) {
        *(void **)&next = condition_function("pthread_cond_signal");
    }
    maybe_late();
    return next(condition);
}
