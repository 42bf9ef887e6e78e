/* stream_load PORT REQUEST-FILE CONNECTIONS SECONDS: sends the request again and again on each
 * connection, reads the stream that is its answer to the end, and prints one JSON line: requests a
 * second, and the time to the first byte of an answer's body. A thread for each connection. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "load.h"

enum { MOST_CONNECTIONS = 1024, READ_BYTES = 1 << 16, PATIENCE_S = 60 };

static struct {
    uint16_t port;
    char *request;
    size_t n_request;
    uint64_t begin_ns, end_ns; /* of what counts */
    pthread_mutex_t lock;
    struct histogram first;
    uint64_t answers, failures, last_ns; /* last_ns: when the last of these ended */
} run = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int connect_to(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(run.port)};
    struct timeval patience = {.tv_sec = PATIENCE_S};
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static bool send_request(int fd) {
    for (size_t at = 0; at < run.n_request;) {
        ssize_t n = send(fd, run.request + at, run.n_request - at, MSG_NOSIGNAL);
        if (n <= 0) {
            return false;
        }
        at += (size_t)n;
    }
    return true;
}

/* Reads a chunked answer. Returns: whether it was complete, with status 200. */
static bool read_answer(int fd, uint64_t *first_ns) {
    static const char END[] = "\r\n0\r\n\r\n";
    enum { END_BYTES = sizeof(END) - 1 };
    char data[READ_BYTES + 1];
    size_t n = 0, head = 0;
    bool ok = false;
    for (;;) {
        ssize_t got = recv(fd, data + n, READ_BYTES - n, 0);
        if (got <= 0) {
            return false;
        }
        n += (size_t)got;
        if (head == 0) {
            const char *end = memmem(data, n, "\r\n\r\n", 4);
            if (!end) {
                continue;
            }
            head = (size_t)(end - data) + 4;
            ok = n > 12 && memcmp(data + 9, "200", 3) == 0;
            if (!ok) {
                return false;
            }
        }
        if (*first_ns == 0 && n > head) {
            *first_ns = now_ns();
        }
        if (n >= head + END_BYTES && memcmp(data + n - END_BYTES, END, END_BYTES) == 0) {
            return ok;
        }
        if (n > READ_BYTES / 2) { /* only its end is needed */
            memmove(data, data + n - END_BYTES, END_BYTES);
            n = END_BYTES;
            head = 1;
        }
    }
}

static void *run_connection(void *unused) {
    int fd = -1;
    (void)unused;
    for (uint64_t begun_ns = now_ns(); begun_ns < run.end_ns; begun_ns = now_ns()) {
        uint64_t first_ns = 0;
        fd = fd < 0 ? connect_to() : fd;
        bool ok = fd >= 0 && send_request(fd) && read_answer(fd, &first_ns);
        uint64_t ended_ns = now_ns();
        if (begun_ns >= run.begin_ns) {
            pthread_mutex_lock(&run.lock);
            run.last_ns = ended_ns > run.last_ns ? ended_ns : run.last_ns;
            run.answers += ok;
            run.failures += !ok;
            if (ok) {
                histogram_add(&run.first, first_ns - begun_ns);
            }
            pthread_mutex_unlock(&run.lock);
        }
        if (!ok && fd >= 0) {
            close(fd);
            fd = -1;
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    return NULL;
}

static void read_request(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0) {
        perror(path);
        exit(2);
    }
    run.n_request = (size_t)ftell(file);
    rewind(file);
    run.request = malloc(run.n_request);
    if (!run.request || fread(run.request, 1, run.n_request, file) != run.n_request) {
        exit(2);
    }
    fclose(file);
}

int main(int argc, char **argv) {
    static pthread_t threads[MOST_CONNECTIONS];
    if (argc != 5 || atoi(argv[3]) < 1 || atoi(argv[3]) > MOST_CONNECTIONS) {
        fprintf(stderr, "usage: stream_load PORT REQUEST-FILE CONNECTIONS SECONDS\n");
        return 2;
    }
    int n = atoi(argv[3]);
    double seconds = atof(argv[4]);
    run.port = (uint16_t)atoi(argv[1]);
    read_request(argv[2]);
    run.begin_ns = now_ns() + 300000000u;
    run.end_ns = run.begin_ns + (uint64_t)(seconds * 1e9);
    for (int i = 0; i < n; i++) {
        if (pthread_create(&threads[i], NULL, run_connection, NULL) != 0) {
            return 1;
        }
    }
    for (int i = 0; i < n; i++) {
        pthread_join(threads[i], NULL);
    }
    double took = (double)(run.last_ns - run.begin_ns) / 1e9;
    printf("{\"rate\":%.2f,\"seconds\":%.3f,\"answers\":%llu,\"failures\":%llu,\"p50_us\":%.1f,"
           "\"p99_us\":%.1f}\n",
           (double)run.answers / took, took, (unsigned long long)run.answers,
           (unsigned long long)run.failures, (double)histogram_quantile(&run.first, 0.5) / 1e3,
           (double)histogram_quantile(&run.first, 0.99) / 1e3);
    return 0;
}
