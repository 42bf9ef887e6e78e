/* Calls of libsluice, one after the other: inferences of FP32 [1,16], whose output is read.
 *
 *     client_calls URL MODEL SECONDS */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "sluice/client.h"

enum { N = 16 };

static double now(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void check(sluice_client_status status, const sluice_client_error *error) {
    if (status != SLUICE_CLIENT_OK) {
        fprintf(stderr, "client_calls: %s\n", error->text);
        exit(1);
    }
}

static float infer(sluice_client *client, const char *model, sluice_client_error *error) {
    static const int64_t dims[] = {1, N};
    static const float numbers[N] = {1, 2, 3};
    float came[N];
    sluice_tensor input = sluice_tensor_f32("INPUT0", numbers, dims, 2);
    sluice_tensor output = {.size = sizeof(output)};
    const sluice_infer_request request = {
        .size = sizeof(request), .model = model, .inputs = &input, .n_inputs = 1};
    sluice_call *call;
    check(sluice_client_infer(client, &request, NULL, &call, error), error);
    check(sluice_call_find_output(call, "OUTPUT0", &output), error);
    check(sluice_tensor_read(&output, SLUICE_FP32, came, N), error);
    sluice_call_free(call);
    return came[2];
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: client_calls URL MODEL SECONDS\n");
        return 2;
    }
    const sluice_client_options options = {.size = sizeof(options), .url = argv[1]};
    sluice_client_error error = {.size = sizeof(error)};
    sluice_client *client;
    check(sluice_client_open(&options, &client, &error), &error);
    unsigned long n = 0;
    double start = now(), end = start + atof(argv[3]);
    while (now() < end) {
        if (infer(client, argv[2], &error) < 3) {
            fprintf(stderr, "client_calls: the model did not answer its input\n");
            return 1;
        }
        n++;
    }
    printf("{\"rate\":%.1f}\n", (double)n / (now() - start));
    sluice_client_close(client);
    return 0;
}
