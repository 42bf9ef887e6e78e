/* libuv's poll handles, which outlive the sockets by a turn. */
#include "net/client/polled.h"

#include <assert.h>
#include <stdlib.h>

static void on_poll(uv_poll_t *poll, int status, int events) {
    struct polled *polled = (struct polled *)(void *)poll;
    polled->set->ready(polled->set, polled->fd, events & UV_READABLE, events & UV_WRITABLE,
                       status < 0);
}

static struct polled *polled_new(struct polled_set *set, int fd) {
    struct polled *polled = calloc(1, sizeof(*polled));
    if (!polled || uv_poll_init_socket(worker_loop(set->worker), &polled->poll, fd) != 0) {
        free(polled);
        return NULL;
    }
    polled->set = set;
    polled->fd = fd;
    polled->next = set->first;
    if (polled->next) {
        polled->next->prev = polled;
    }
    set->first = polled;
    set->n_handles++;
    return polled;
}

struct polled *polled_watch(struct polled_set *set, struct polled *polled, int fd, bool read,
                            bool write) {
    int events = (read ? UV_READABLE : 0) | (write ? UV_WRITABLE : 0);
    bool is_new = !polled;
    if (is_new) {
        polled = polled_new(set, fd);
    }
    if (polled && uv_poll_start(&polled->poll, events, on_poll) != 0) {
        if (is_new) {
            polled_end(polled);
        }
        return NULL;
    }
    return polled;
}

struct polled *polled_find(const struct polled_set *set, int fd) {
    struct polled *polled = set->first;
    while (polled && polled->fd != fd) {
        polled = polled->next;
    }
    return polled;
}

static void on_closed(uv_handle_t *handle) {
    struct polled_set *set = ((struct polled *)(void *)handle)->set;
    free(handle);
    if (--set->n_handles == 0 && set->gone) {
        set->gone(set);
    }
}

void polled_end(struct polled *polled) {
    struct polled_set *set = polled->set;
    *(polled->prev ? &polled->prev->next : &set->first) = polled->next;
    if (polled->next) {
        polled->next->prev = polled->prev;
    }
    uv_close((uv_handle_t *)&polled->poll, on_closed);
}

void polled_set_close(struct polled_set *set, void (*gone)(struct polled_set *set)) {
    assert(!set->first);
    set->gone = gone;
    if (set->n_handles == 0) {
        gone(set);
    }
}
