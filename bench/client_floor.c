/* The floor for calls of a client, one after the other on one connection: writes a request that was
 * made before and reads its answer, without looking at it.
 *
 *     client_floor http PORT REQUEST SECONDS ANSWER_BYTES
 *     client_floor grpc PORT REQUEST SECONDS       REQUEST: frames, whose stream is filled in */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST_BYTES = 1 << 20, FRAME_HEAD = 9, END_STREAM = 1 };

static unsigned char in[MOST_BYTES];

static double now(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static int dial(const char *port) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons((uint16_t)atoi(port))};
    int yes = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes)) != 0) {
        fail("client_floor: connect");
    }
    return fd;
}

static void put(int fd, const void *data, size_t n) {
    if (send(fd, data, n, MSG_NOSIGNAL) != (ssize_t)n) {
        fail("client_floor: send");
    }
}

/* Receives what is there, to `in` from `at` on. */
static size_t get(int fd, size_t at) {
    ssize_t n = recv(fd, in + at, sizeof(in) - at, 0);
    if (n <= 0) {
        fail("client_floor: recv");
    }
    return (size_t)n;
}

static void call_http(int fd, const unsigned char *request, size_t n, size_t n_answer) {
    put(fd, request, n);
    for (size_t n_in = 0; n_in < n_answer;) {
        n_in += get(fd, 0);
    }
}

/* ---- HTTP/2 ---------------------------------------------------------------------------------- */

static uint32_t number(const unsigned char *bytes, size_t n) {
    uint32_t value = 0;
    for (size_t i = 0; i < n; i++) {
        value = value << 8 | bytes[i];
    }
    return value;
}

/* The preface, SETTINGS with a large window, room for all answers, and the ACK of the server's
 * SETTINGS, which it may get early. */
static void greet(int fd) {
    static const char hello[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
                                "\0\0\6\4\0\0\0\0\0"
                                "\0\4\x7f\xff\xff\xff"
                                "\0\0\4\10\0\0\0\0\0"
                                "\x7f\0\0\0"
                                "\0\0\0\4\1\0\0\0\0";
    put(fd, hello, sizeof(hello) - 1);
}

static void set_stream(unsigned char *frames, size_t n, uint32_t id) {
    for (size_t at = 0; at < n; at += FRAME_HEAD + number(frames + at, 3)) {
        for (size_t i = 0; i < 4; i++) {
            frames[at + 5 + i] = (unsigned char)(id >> (24 - 8 * i));
        }
    }
}

/* Reads frames until the last one of the stream. */
static void call_grpc(int fd, unsigned char *request, size_t n, uint32_t id) {
    static size_t n_in;
    bool ended = false;
    set_stream(request, n, id);
    put(fd, request, n);
    while (!ended) {
        n_in += get(fd, n_in);
        size_t at = 0;
        while (n_in - at >= FRAME_HEAD && n_in - at >= FRAME_HEAD + number(in + at, 3)) {
            bool has_end = in[at + 3] <= 1 && (in[at + 4] & END_STREAM);
            ended = ended || (has_end && number(in + at + 5, 4) == id);
            at += FRAME_HEAD + number(in + at, 3);
        }
        n_in -= at;
        memmove(in, in + at, n_in);
    }
}

int main(int argc, char **argv) {
    bool is_grpc = argc == 5 && strcmp(argv[1], "grpc") == 0;
    if (!is_grpc && argc != 6) {
        fprintf(stderr, "usage: client_floor http|grpc PORT REQUEST SECONDS [ANSWER_BYTES]\n");
        return 2;
    }
    static unsigned char request[MOST_BYTES];
    FILE *file = fopen(argv[3], "rb");
    size_t n = file ? fread(request, 1, sizeof(request), file) : 0;
    if (n == 0) {
        fail(argv[3]);
    }
    fclose(file);
    int fd = dial(argv[2]);
    uint32_t n_calls = 0;
    if (is_grpc) {
        greet(fd);
    }
    double start = now(), end = start + atof(argv[4]);
    while (now() < end) {
        if (is_grpc) {
            call_grpc(fd, request, n, 1 + 2 * n_calls);
        } else {
            call_http(fd, request, n, (size_t)atol(argv[5]));
        }
        n_calls++;
    }
    printf("{\"rate\":%.1f}\n", n_calls / (now() - start));
    close(fd);
    return 0;
}
