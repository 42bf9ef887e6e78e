/* The host's functions. Answers arrive on any thread, so failures are recorded here and reported by
 * test_request_wait. */
#include "host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <dlfcn.h>
#include <pthread.h>

#include <cmocka.h>

#include "test_request.h"

enum { MAX_LINES = 64, LINE_BYTES = 512 };

struct log {
    pthread_mutex_t lock;
    size_t counts[4];
    size_t n_lines;
    char lines[MAX_LINES][LINE_BYTES];
};

static struct log *log_get(void) {
    static struct log the_log = {.lock = PTHREAD_MUTEX_INITIALIZER};
    return &the_log;
}

static void respond(const sluice_request *request, const sluice_response *response) {
    test_request_on_response(request->host, response);
}

static int is_cancelled(const sluice_request *request) {
    return ((const struct test_request *)request->host)->cancelled;
}

static void log_line(sluice_log_level level, const char *model, const char *text) {
    struct log *log = log_get();
    pthread_mutex_lock(&log->lock);
    log->counts[level]++;
    if (log->n_lines < MAX_LINES) {
        snprintf(log->lines[log->n_lines++], LINE_BYTES, "%s: %s", model, text);
    }
    pthread_mutex_unlock(&log->lock);
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static _Atomic size_t n_computed; /* instances run on threads of their own */

size_t host_computed_count(void) {
    return n_computed;
}

static void computed(const sluice_request *const *requests, size_t n, uint64_t began_ns,
                     uint64_t ended_ns) {
    n_computed++;
    bool possible = began_ns > 0 && began_ns <= ended_ns && ended_ns <= now_ns();
    for (size_t i = 0; i < n; i++) {
        test_request_on_computed(requests[i]->host, possible);
    }
}

const sluice_host *host_get(void) {
    static const sluice_host host = {.size = sizeof(host),
                                     .abi = SLUICE_BACKEND_ABI,
                                     .respond = respond,
                                     .is_cancelled = is_cancelled,
                                     .log = log_line,
                                     .now_ns = now_ns,
                                     .computed = computed};
    return &host;
}

host_entry host_load(const char *directory, const char *name) {
    char path[4096];
    snprintf(path, sizeof(path), "%s/libsluice_%s.so", directory, name);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fail_msg("%s", dlerror());
    }
    /* POSIX's way to convert a pointer to an object to one to a function. */
    host_entry entry;
    *(void **)&entry = dlsym(library, "sluice_backend_entry");
    assert_true(entry != NULL);
    return entry;
}

size_t host_log_count(sluice_log_level level) {
    struct log *log = log_get();
    pthread_mutex_lock(&log->lock);
    size_t count = log->counts[level];
    pthread_mutex_unlock(&log->lock);
    return count;
}

bool host_log_has(const char *part) {
    struct log *log = log_get();
    bool found = false;
    pthread_mutex_lock(&log->lock);
    for (size_t i = 0; i < log->n_lines; i++) {
        found = found || strstr(log->lines[i], part);
    }
    pthread_mutex_unlock(&log->lock);
    return found;
}

void host_log_clear(void) {
    struct log *log = log_get();
    pthread_mutex_lock(&log->lock);
    memset(log->counts, 0, sizeof(log->counts));
    log->n_lines = 0;
    pthread_mutex_unlock(&log->lock);
}
