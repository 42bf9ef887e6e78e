/* The floor for MIP: a server on the same event loop library that sends back what it reads, and
 * does nothing else. `echo_uv` prints the port it listens on and ends with its standard input. */
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

enum { READ_BYTES = 65536 };

static char buffer[READ_BYTES];

struct rest {
    uv_write_t write;
    char bytes[];
};

static void on_close(uv_handle_t *handle) {
    free(handle);
}

static void on_written(uv_write_t *write, int status) {
    (void)status;
    free(write);
}

static void on_alloc(uv_handle_t *handle, size_t wanted, uv_buf_t *out) {
    (void)handle, (void)wanted;
    *out = uv_buf_init(buffer, READ_BYTES);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *in) {
    if (n <= 0) {
        if (n < 0) {
            uv_close((uv_handle_t *)stream, on_close);
        }
        return;
    }
    uv_buf_t out = uv_buf_init(in->base, (unsigned)n);
    int sent = uv_try_write(stream, &out, 1);
    sent = sent < 0 ? 0 : sent;
    size_t left = (size_t)n - (size_t)sent;
    if (left > 0) {
        struct rest *rest = malloc(sizeof *rest + left);
        memcpy(rest->bytes, in->base + sent, left);
        out = uv_buf_init(rest->bytes, (unsigned)left);
        uv_write(&rest->write, stream, &out, 1, on_written);
    }
}

static void on_connection(uv_stream_t *listener, int status) {
    uv_tcp_t *tcp = malloc(sizeof *tcp);
    if (status != 0 || uv_tcp_init(listener->loop, tcp) != 0) {
        free(tcp);
        return;
    }
    if (uv_accept(listener, (uv_stream_t *)tcp) != 0) {
        uv_close((uv_handle_t *)tcp, on_close);
        return;
    }
    uv_tcp_nodelay(tcp, 1);
    uv_read_start((uv_stream_t *)tcp, on_alloc, on_read);
}

static void on_stdin(uv_poll_t *poll, int status, int events) {
    (void)status, (void)events;
    uv_stop(poll->loop);
}

int main(void) {
    static uv_tcp_t listener;
    static uv_poll_t in;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int len = sizeof address;
    uv_loop_t *loop = uv_default_loop();
    signal(SIGPIPE, SIG_IGN); /* the load ends in the middle of an answer */
    if (uv_tcp_init(loop, &listener) != 0 ||
        uv_tcp_bind(&listener, (struct sockaddr *)&address, 0) != 0 ||
        uv_listen((uv_stream_t *)&listener, 1024, on_connection) != 0 ||
        uv_tcp_getsockname(&listener, (struct sockaddr *)&address, &len) != 0) {
        fprintf(stderr, "echo_uv: no port to listen on\n");
        return 1;
    }
    printf("%u\n", (unsigned)ntohs(address.sin_port));
    fflush(stdout);
    uv_poll_init(loop, &in, 0);
    uv_poll_start(&in, UV_READABLE, on_stdin);
    return uv_run(loop, UV_RUN_DEFAULT);
}
