/* Sends numbers to a model in half precision (FP16) and prints the result:
 *     http_half URL MODEL INPUT NUMBER…
 *
 *     cc http_half.c -o http_half $(pkg-config --cflags --libs sluice)
 *
 * The model's input takes a row of any length, and so does its output. With SLUICE_BF16,
 * sluice_tensor_bf16 and sluice_bf16_… it is the other 16-bit format. */
#include <stdio.h>
#include <stdlib.h>

#include <sluice/client.h>

enum { MOST = 100 };

static int ask(sluice_client *client, char **argv, const float *numbers, size_t n,
               sluice_client_error *error) {
    uint16_t half[MOST];
    float came[MOST];
    const int64_t dims[] = {(int64_t)n};
    sluice_f16_from_f32(half, numbers, n);
    sluice_tensor input = sluice_tensor_f16(argv[3], half, dims, 1);
    sluice_infer_request request = {.size = sizeof(request), .model = argv[2]};
    request.inputs = &input, request.n_inputs = 1;
    sluice_tensor output = {.size = sizeof(output)};
    sluice_call *call;
    int ok = sluice_client_infer(client, &request, NULL, &call, error) == SLUICE_CLIENT_OK;
    if (ok && sluice_call_output(call, 0, &output) == SLUICE_CLIENT_OK &&
        sluice_tensor_read(&output, SLUICE_FP16, half, n) == SLUICE_CLIENT_OK) {
        sluice_f16_to_f32(came, half, n);
        for (size_t i = 0; i < n; i++) {
            printf("%g%s", (double)came[i], i + 1 < n ? " " : "\n");
        }
    }
    sluice_call_free(call);
    return ok;
}

int main(int argc, char **argv) {
    if (argc < 5) {
        fprintf(stderr, "usage: http_half URL MODEL INPUT NUMBER…\n");
        return 2;
    }
    float numbers[MOST];
    size_t n = 0;
    for (int i = 4; i < argc && n < MOST; i++) {
        numbers[n++] = strtof(argv[i], NULL);
    }
    sluice_client_options options = {.size = sizeof(options), .url = argv[1]};
    sluice_client *client = NULL;
    sluice_client_error error = {.size = sizeof(error)};
    int ok = sluice_client_open(&options, &client, &error) == SLUICE_CLIENT_OK &&
             ask(client, argv, numbers, n, &error);
    if (!ok) {
        fprintf(stderr, "http_half: %s\n", error.text);
    }
    sluice_client_close(client);
    return !ok;
}
