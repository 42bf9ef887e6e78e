/* Running a bench server. */
#include "grpc_server_main.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/event/worker.h"
#include "net/server/shutdown.h"
#include "net/transport/budget.h"

struct bench {
    struct worker *worker;
    struct grpc_server *server;
    uv_pipe_t input;
};

static void on_stopped(void *cookie) {
    worker_stop(cookie);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf) {
    static char bytes[64];
    (void)handle, (void)suggested;
    *buf = uv_buf_init(bytes, sizeof(bytes));
}

static void on_input(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf) {
    struct bench *bench = stream->data;
    (void)buf;
    if (n < 0) {
        uv_close((uv_handle_t *)stream, NULL);
        net_server_stop(grpc_server_net(bench->server), on_stopped, bench->worker);
    }
}

static enum status begin(struct bench *bench, struct net_budget *budget,
                         const struct grpc_method *method, const char *text, struct error *err) {
    struct address address, bound;
    char printed[ADDRESS_TEXT_BYTES];
    struct grpc_server_options options = {
        .limits = {.net = {.max_header_size = 65536,
                           .max_body_size = 256u << 20,
                           .request_memory = 64u << 20,
                           .idle_timeout_ns = 60000000000,
                           .header_timeout_ns = 10000000000,
                           .body_timeout_ns = 60000000000,
                           .write_timeout_ns = 60000000000},
                   .max_streams = 1000,
                   .stream_window_bytes = 4 << 20,
                   .connection_window_bytes = 16 << 20},
        .budget = budget,
        .methods = method,
        .n_methods = 1,
        .n_workers = 1,
    };
    enum status st = worker_new("bench", &bench->worker, err);
    options.workers = &bench->worker;
    options.acceptor = bench->worker;
    if (st == ST_OK) {
        st = grpc_server_new(&options, &bench->server, err);
    }
    if (st == ST_OK) {
        st = address_parse(str_of(text), &address, err);
    }
    if (st == ST_OK) {
        st = grpc_server_listen(bench->server, &address, NULL, &bound, err);
    }
    if (st == ST_OK) {
        printf("%s\n", address_print(&bound, printed));
        fflush(stdout);
    }
    return st;
}

int grpc_server_main(const struct grpc_method *method, int argc, char **argv) {
    static struct net_budget budget = {.body_memory = 1u << 30, .max_connections = 10000};
    static struct bench bench;
    struct error err;
    if (begin(&bench, &budget, method, argc > 1 ? argv[1] : "127.0.0.1:0", &err) != ST_OK) {
        fprintf(stderr, "%s: %s\n", argv[0], err.text);
        return EXIT_FAILURE;
    }
    uv_pipe_init(worker_loop(bench.worker), &bench.input, 0);
    uv_pipe_open(&bench.input, STDIN_FILENO);
    bench.input.data = &bench;
    uv_read_start((uv_stream_t *)&bench.input, on_alloc, on_input);
    worker_run(bench.worker);
    grpc_server_free(bench.server);
    worker_free(bench.worker);
    return EXIT_SUCCESS;
}
