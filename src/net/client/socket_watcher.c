/* libuv poll handles, which close one event-loop iteration after the socket. */
#include "net/client/socket_watcher.h"

#include <assert.h>
#include <stdlib.h>

static void on_poll(uv_poll_t *poll, int status, int events) {
    struct socket_watcher *watcher = (struct socket_watcher *)(void *)poll;
    watcher->set->on_ready(watcher->set, watcher->fd, events & UV_READABLE, events & UV_WRITABLE,
                           status < 0);
}

static struct socket_watcher *socket_watcher_new(struct socket_watcher_set *set, int fd) {
    struct socket_watcher *watcher = calloc(1, sizeof(*watcher));
    if (!watcher || uv_poll_init_socket(worker_loop(set->worker), &watcher->poll, fd) != 0) {
        free(watcher);
        return NULL;
    }
    watcher->set = set;
    watcher->fd = fd;
    LIST_INSERT_HEAD(&set->watchers, watcher, link);
    set->n_handles++;
    return watcher;
}

struct socket_watcher *socket_watcher_update(struct socket_watcher_set *set,
                                             struct socket_watcher *watcher, int fd, bool read,
                                             bool write) {
    int events = (read ? UV_READABLE : 0) | (write ? UV_WRITABLE : 0);
    bool is_new = !watcher;
    if (is_new) {
        watcher = socket_watcher_new(set, fd);
    }
    if (watcher && uv_poll_start(&watcher->poll, events, on_poll) != 0) {
        if (is_new) {
            socket_watcher_close(watcher);
        }
        return NULL;
    }
    return watcher;
}

struct socket_watcher *socket_watcher_find(const struct socket_watcher_set *set, int fd) {
    struct socket_watcher *watcher;
    LIST_FOREACH(watcher, &set->watchers, link) {
        if (watcher->fd == fd) {
            return watcher;
        }
    }
    return NULL;
}

static void on_closed(uv_handle_t *handle) {
    struct socket_watcher_set *set = ((struct socket_watcher *)(void *)handle)->set;
    free(handle);
    if (--set->n_handles == 0 && set->on_closed) {
        set->on_closed(set);
    }
}

void socket_watcher_close(struct socket_watcher *watcher) {
    LIST_REMOVE(watcher, link);
    uv_close((uv_handle_t *)&watcher->poll, on_closed);
}

void socket_watcher_set_close(struct socket_watcher_set *set,
                              void (*on_all_closed)(struct socket_watcher_set *set)) {
    assert(LIST_EMPTY(&set->watchers));
    set->on_closed = on_all_closed;
    if (set->n_handles == 0) {
        on_all_closed(set);
    }
}
