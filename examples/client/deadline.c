/* Sends an inference for each deadline, one after the other, and prints which were in time:
 *     deadline URL MODEL INPUT MILLISECONDS…
 *
 *     cc deadline.c -o deadline $(pkg-config --cflags --libs sluice)
 *
 * The model's input is FP32 and takes a row of any length. The server is told the deadline and may
 * be the first to notice that it has passed. */
#include <stdio.h>
#include <stdlib.h>

#include <sluice/client.h>

enum { GATEWAY_TIMEOUT = 504, DEADLINE_EXCEEDED = 4, NS_PER_MS = 1000000 };

static int is_late(const sluice_client_error *error) {
    return error->status == SLUICE_CLIENT_TIMEOUT || error->http_status == GATEWAY_TIMEOUT ||
           error->grpc_status == DEADLINE_EXCEEDED;
}

static int ask(sluice_client *client, char **argv, const char *ms, sluice_client_error *error) {
    static const float number = 1;
    static const int64_t dims[] = {1};
    sluice_tensor input = sluice_tensor_f32(argv[3], &number, dims, 1);
    sluice_infer_request request = {.size = sizeof(request), .model = argv[2]};
    sluice_call_options options = {.size = sizeof(options)};
    options.timeout_ns = strtoull(ms, NULL, 10) * NS_PER_MS;
    request.inputs = &input, request.n_inputs = 1;
    sluice_call *call;
    int ok = sluice_client_infer(client, &request, &options, &call, error) == SLUICE_CLIENT_OK;
    sluice_call_free(call);
    if (ok || is_late(error)) {
        printf("%s ms: %s\n", ms, ok ? "in time" : "too late");
    }
    return ok || is_late(error);
}

int main(int argc, char **argv) {
    if (argc < 5) {
        fprintf(stderr, "usage: deadline URL MODEL INPUT MILLISECONDS…\n");
        return 2;
    }
    sluice_client_options options = {.size = sizeof(options), .url = argv[1]};
    sluice_client *client = NULL;
    sluice_client_error error = {.size = sizeof(error)};
    int ok = sluice_client_open(&options, &client, &error) == SLUICE_CLIENT_OK;
    for (int i = 4; ok && i < argc; i++) {
        ok = ask(client, argv, argv[i], &error);
    }
    if (!ok) {
        fprintf(stderr, "deadline: %s\n", error.text);
    }
    sluice_client_close(client);
    return !ok;
}
