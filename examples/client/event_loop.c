/* Pings several servers at the same time, in one thread: event_loop URL…
 *
 *     cc event_loop.c -o event_loop $(pkg-config --cflags --libs sluice)
 *
 * poll(2) stands for the program's own event loop: get each client's descriptor and timeout, wait,
 * step. An inference works the same way; sluice_call_output reads its results. */
#include <limits.h>
#include <poll.h>
#include <stdio.h>

#include <sluice/client.h>

enum { MOST = 16 };

static struct pollfd interest(const sluice_client *client, int *timeout_ms) {
    uint64_t timeout_ns = sluice_client_timeout_ns(client);
    uint64_t ms = timeout_ns / 1000000 + (timeout_ns > 0);
    *timeout_ms = ms < (uint64_t)*timeout_ms ? (int)ms : *timeout_ms;
    return (struct pollfd){sluice_client_fd(client), POLLIN, 0};
}

int main(int argc, char **argv) {
    if (argc < 2 || argc > MOST + 1) {
        fprintf(stderr, "usage: event_loop URL… (at most %d)\n", MOST);
        return 2;
    }
    sluice_client *clients[MOST]; /* NULL: its call is done */
    sluice_call *calls[MOST];
    sluice_client_error error = {.size = sizeof(error)};
    int n = argc - 1, n_left = n;
    for (int i = 0; i < n; i++) {
        sluice_client_options options = {.size = sizeof(options), .url = argv[i + 1]};
        if (sluice_client_open(&options, &clients[i], &error) != SLUICE_CLIENT_OK ||
            sluice_client_start_ping(clients[i], NULL, &calls[i], &error) != SLUICE_CLIENT_OK) {
            fprintf(stderr, "event_loop: %s\n", error.text);
            return 1;
        }
    }
    while (n_left > 0) {
        struct pollfd fds[MOST];
        int timeout_ms = INT_MAX;
        for (int i = 0; i < n; i++) {
            fds[i] = clients[i] ? interest(clients[i], &timeout_ms) : (struct pollfd){-1, 0, 0};
        }
        poll(fds, (nfds_t)n, timeout_ms);
        for (int i = 0; i < n; i++) {
            if (!clients[i]) {
                continue;
            }
            sluice_client_step(clients[i]);
            sluice_client_status status = sluice_call_status(calls[i], &error);
            if (status != SLUICE_CLIENT_PENDING) {
                printf("%s: %s\n", argv[i + 1], status == SLUICE_CLIENT_OK ? "ok" : error.text);
                sluice_client_close(clients[i]); /* frees its call too */
                clients[i] = NULL;
                n_left--;
            }
        }
    }
    return 0;
}
