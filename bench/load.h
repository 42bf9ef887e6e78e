/* The parts of the load generator: a few requests in rotation on many connections, each of which
 * sends the next request when it has the answer to the last. It knows just enough HTTP/1.1 and MIP
 * to find where an answer ends. */
#ifndef SLUICE_BENCH_LOAD_H
#define SLUICE_BENCH_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What to do, from the command line. */
struct load_options {
    const char *host;
    const char *port;
    const char *request_files; /* "a,b": each the bytes of one request, head and body; all HTTP or
                                  all MIP */
    unsigned connections;
    double seconds;
    double warmup;
    bool reconnect; /* a new connection for each request */
};

/* Latencies in buckets of about 1.6 % width: index by the top bits of the nanoseconds. */
enum { HISTOGRAM_SUB_BITS = 6, HISTOGRAM_BUCKETS = 64 << HISTOGRAM_SUB_BITS };

struct histogram {
    uint64_t counts[HISTOGRAM_BUCKETS];
    uint64_t total;
};

void histogram_add(struct histogram *histogram, uint64_t ns);
/* The latency in nanoseconds below which `share` (0..1) of all lie. */
uint64_t histogram_quantile(const struct histogram *histogram, double share);

struct load_result {
    uint64_t answers;
    uint64_t failures; /* answers other than 200 */
    uint64_t bytes_in;
    uint64_t bytes_out;
    double seconds;
    struct histogram latency;
};

/* Runs the load. Returns: 0, or 1 after a message on standard error. */
int load_run(const struct load_options *options, struct load_result *result);

/* Finds the end of an answer's head. `data` is what has come so far. Returns: false when it is not
 * complete. */
bool load_head_parse(const char *data, size_t n, size_t *head_bytes, uint64_t *body_bytes,
                     int *status);
/* The same for a packet of MIP, which begins with its version, 0. An error packet is no 200. */
bool load_packet_parse(const char *data, size_t n, size_t *head_bytes, uint64_t *body_bytes,
                       int *status);

#endif
