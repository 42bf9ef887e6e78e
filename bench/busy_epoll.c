/* Preloaded into load generators: epoll_wait polls instead of sleeping until an event arrives. The
 * process that wakes a sleeper pays for it; on one machine that is the measured server, and the
 * slower the server, the more often its clients sleep: a microsecond of a request's ten. Over a
 * network a server wakes no client.
 *
 * Clause: epoll_wait(2), epoll_pwait(2). */
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SHOWN __attribute__((visibility("default")))

enum { LOOKS_PER_CLOCK = 16, SIGNALS_BYTES = 8 /* of the kernel's set of signals */ };

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

SHOWN int epoll_pwait(int epoll, struct epoll_event *events, int max, int timeout_ms,
                      const sigset_t *signals) {
    int64_t end_ms = timeout_ms > 0 ? now_ms() + timeout_ms : 0;
    for (unsigned i = 1;; i++) {
        int n = (int)syscall(SYS_epoll_pwait, epoll, events, max, 0, signals, SIGNALS_BYTES);
        if (n != 0 || timeout_ms == 0) {
            return n;
        }
        if (timeout_ms > 0 && i % LOOKS_PER_CLOCK == 0 && now_ms() >= end_ms) {
            return 0;
        }
    }
}

SHOWN int epoll_wait(int epoll, struct epoll_event *events, int max, int timeout_ms) {
    return epoll_pwait(epoll, events, max, timeout_ms, NULL);
}
