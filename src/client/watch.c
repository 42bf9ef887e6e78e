/* Registering sockets, with as few calls of the system as possible. */
#include "client/watch.h"

#include <sys/epoll.h>

void client_watch_set(struct client_watch *watch, int epoll_fd, const struct client_watched *wanted,
                      void *ptr) {
    int fd = wanted->is_out ? -1 : wanted->socket;
    bool is_in =
        watch->fd >= 0 && watch->fd == wanted->socket && watch->n_sockets == wanted->n_sockets;
    struct epoll_event event = {.events = wanted->events, .data.ptr = ptr};
    watch->n_sockets = wanted->n_sockets;
    if (fd < 0 && is_in) {
        (void)epoll_ctl(epoll_fd, EPOLL_CTL_DEL, wanted->socket, &event);
    }
    if (fd < 0 || (is_in && wanted->events == watch->events)) {
        watch->fd = fd;
        return;
    }
    watch->events = wanted->events;
    watch->fd = fd;
    if (epoll_ctl(epoll_fd, is_in ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) != 0) {
        watch->fd = -1;
    }
}
