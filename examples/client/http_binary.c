/* Sends numbers to a model in binary and prints the result:
 *     http_binary URL MODEL INPUT NUMBER…
 *
 *     cc http_binary.c -o http_binary $(pkg-config --cflags --libs sluice)
 *
 * The model's input is FP32 and takes a row of any length, and so is its output. The numbers are
 * sent from the caller's array, and those of the answer are received into another. */
#include <stdio.h>
#include <stdlib.h>

#include <sluice/client.h>

enum { MOST = 100 };

static float numbers[MOST], came[MOST];

static int ask(sluice_client *client, char **argv, size_t n, sluice_client_error *error) {
    const int64_t dims[] = {(int64_t)n};
    sluice_tensor input = sluice_tensor_f32(argv[3], numbers, dims, 1);
    sluice_wanted wanted = {.size = sizeof(wanted), .data = came, .n_bytes = sizeof(came)};
    sluice_infer_request request = {.size = sizeof(request), .model = argv[2]};
    request.inputs = &input, request.n_inputs = 1;
    request.wanted = &wanted, request.n_wanted = 1;
    sluice_tensor output = {.size = sizeof(output)};
    sluice_call *call;
    int ok = sluice_client_infer(client, &request, NULL, &call, error) == SLUICE_CLIENT_OK;
    if (ok) {
        sluice_call_output(call, 0, &output);
    }
    size_t n_came = output.n_bytes / sizeof(*came);
    for (size_t i = 0; i < n_came; i++) {
        printf("%s%g%s", i > 0 ? " " : "", (double)came[i], i + 1 == n_came ? "\n" : "");
    }
    sluice_call_free(call);
    return ok;
}

int main(int argc, char **argv) {
    if (argc < 5) {
        fprintf(stderr, "usage: http_binary URL MODEL INPUT NUMBER…\n");
        return 2;
    }
    size_t n = 0;
    for (int i = 4; i < argc && n < MOST; i++) {
        numbers[n++] = strtof(argv[i], NULL);
    }
    sluice_client_options options = {.size = sizeof(options), .url = argv[1]};
    sluice_client *client = NULL;
    sluice_client_error error = {.size = sizeof(error)};
    int ok = sluice_client_open(&options, &client, &error) == SLUICE_CLIENT_OK &&
             ask(client, argv, n, &error);
    if (!ok) {
        fprintf(stderr, "http_binary: %s\n", error.text);
    }
    sluice_client_close(client);
    return !ok;
}
