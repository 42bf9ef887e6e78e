/* load HOST PORT REQUEST-FILE[,REQUEST-FILE...] CONNECTIONS SECONDS [WARMUP [reconnect]]: prints
 * one JSON line. */
#include "load.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    if (argc < 6) {
        fprintf(
            stderr,
            "usage: load HOST PORT REQUEST-FILE[,...] CONNECTIONS SECONDS [WARMUP [reconnect]]\n");
        return 2;
    }
    struct load_options options = {.host = argv[1],
                                   .port = argv[2],
                                   .request_files = argv[3],
                                   .connections = (unsigned)atoi(argv[4]),
                                   .seconds = atof(argv[5]),
                                   .warmup = argc > 6 ? atof(argv[6]) : 0.3,
                                   .reconnect = argc > 7};
    signal(SIGPIPE, SIG_IGN);
    static struct load_result result;
    if (load_run(&options, &result) != 0) {
        return 1;
    }
    printf("{\"rate\":%.1f,\"answers\":%llu,\"failures\":%llu,\"bytes_per_second\":%.0f,"
           "\"p50_us\":%.1f,\"p99_us\":%.1f,\"seconds\":%.3f}\n",
           (double)result.answers / result.seconds, (unsigned long long)result.answers,
           (unsigned long long)result.failures,
           (double)(result.bytes_in + result.bytes_out) / result.seconds,
           (double)histogram_quantile(&result.latency, 0.5) / 1e3,
           (double)histogram_quantile(&result.latency, 0.99) / 1e3, result.seconds);
    return result.failures ? 1 : 0;
}
