/* Whether a model is ready: its is_ready is called once a second, and what it said last counts. The
 * model is ready while one of its instances is. */
#include "python/instance.h"

#include <stdio.h>
#include <string.h>

enum {
    CHECK_EVERY_MS = 1000, /* is_ready is called so often */
    CHECK_AGAIN_MS = 50,   /* where the worker has to read something else first */
};

void readiness_set(sluice_instance *instance, int is_ready) {
    if (instance->readiness.is_ready != is_ready) {
        instance->readiness.is_ready = is_ready;
        atomic_fetch_add_explicit(&instance->model->n_ready, is_ready ? 1 : -1,
                                  memory_order_relaxed);
    }
}

/* What is_ready has said, or that it is not ready and why. Changes are logged. */
static void set_checked(sluice_instance *instance, int is_ready, const char *why, size_t n_bytes) {
    struct readiness *readiness = &instance->readiness;
    char before[sizeof(readiness->why)], text[sizeof(readiness->why) + 80];
    snprintf(before, sizeof(before), "%s", readiness->why);
    lines_copy_text(why, is_ready ? 0 : n_bytes, readiness->why, sizeof(readiness->why));
    if (strcmp(before, readiness->why) != 0) {
        snprintf(text, sizeof(text), "instance %u is %s%s%s", (unsigned)instance->index,
                 is_ready ? "ready again" : "not ready", is_ready ? "" : ": ", readiness->why);
        lines_log(&instance->lines, is_ready ? SLUICE_LOG_INFO : SLUICE_LOG_WARNING, text,
                  strlen(text));
    }
    readiness_set(instance, is_ready);
}

void readiness_take(sluice_instance *instance, struct wire_reader *reader) {
    int is_ready = wire_read_u8(reader) != 0;
    struct wire_text why = wire_read_text(reader);
    if (!instance->readiness.in_flight) {
        reader->failed = 1; /* it was not asked */
    }
    instance->readiness.in_flight = 0;
    if (!reader->failed) {
        int has_why = why.n_bytes > 0;
        set_checked(instance, is_ready, has_why ? why.ptr : "is_ready", has_why ? why.n_bytes : 8);
    }
}

/* Returns: 0 when the worker does not read what was sent before. */
static int send_check(sluice_instance *instance) {
    if (pthread_mutex_trylock(&instance->send_lock) != 0) {
        return 0;
    }
    int has_room = instance_has_room(instance);
    wire_begin(&instance->reply_buf, WIRE_CHECK);
    if (has_room && wire_end(&instance->reply_buf)) { /* where it fails, the worker has ended */
        (void)instance_send_locked(instance, &instance->reply_buf, NULL, 0);
    }
    pthread_mutex_unlock(&instance->send_lock);
    return has_room;
}

/* Has is_ready called where it is time. Returns: in how many ms it is time again; -1: never. */
static int check_locked(sluice_instance *instance) {
    struct readiness *readiness = &instance->readiness;
    uint64_t now_ns = clock_ns(), since_ms = (now_ns - readiness->sent_ns) / 1000000u;
    if (!readiness->checks) {
        return -1;
    }
    uint64_t due_ms = readiness->in_flight ? READINESS_TIMEOUT_MS : CHECK_EVERY_MS;
    if (readiness->sent_ns > 0 && since_ms < due_ms) {
        return (int)(due_ms - since_ms) + 1;
    }
    if (readiness->in_flight) {
        char why[64];
        int n = snprintf(why, sizeof(why), "is_ready has not returned after %d s",
                         READINESS_TIMEOUT_MS / 1000);
        set_checked(instance, 0, why, (size_t)n);
        return CHECK_EVERY_MS; /* it is not called again before it returns */
    }
    if (!send_check(instance)) {
        return CHECK_AGAIN_MS;
    }
    readiness->in_flight = 1;
    readiness->sent_ns = now_ns;
    return READINESS_TIMEOUT_MS;
}

int readiness_check(sluice_instance *instance) {
    pthread_mutex_lock(&instance->read_lock);
    int ms = check_locked(instance);
    pthread_mutex_unlock(&instance->read_lock);
    return ms;
}
