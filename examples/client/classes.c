/* Prints the N highest numbers of a model's output, with their indexes and labels:
 *     classes URL MODEL INPUT OUTPUT N NUMBER…
 *
 *     cc classes.c -o classes $(pkg-config --cflags --libs sluice)
 *
 * The model's input is FP32 of as many numbers. The server sorts, and sends N texts in place of the
 * output. */
#include <stdio.h>
#include <stdlib.h>

#include <sluice/client.h>

enum { MOST = 100 };

static int ask(sluice_client *client, char **argv, const float *numbers, size_t n,
               sluice_client_error *error) {
    const int64_t dims[] = {(int64_t)n};
    sluice_tensor input = sluice_tensor_f32(argv[3], numbers, dims, 1);
    sluice_wanted wanted = {.size = sizeof(wanted), .name = argv[4]};
    wanted.n_classes = (uint32_t)strtoul(argv[5], NULL, 10);
    sluice_infer_request request = {.size = sizeof(request), .model = argv[2]};
    request.inputs = &input, request.n_inputs = 1;
    request.wanted = &wanted, request.n_wanted = 1;
    sluice_tensor output = {.size = sizeof(output)};
    sluice_class best = {.size = sizeof(best)};
    size_t at = 0;
    sluice_call *call;
    int ok = sluice_client_infer(client, &request, NULL, &call, error) == SLUICE_CLIENT_OK &&
             sluice_call_output(call, 0, &output) == SLUICE_CLIENT_OK;
    while (ok && sluice_classes_next(&output, &at, &best) == SLUICE_CLIENT_OK) {
        printf("%g: %llu %.*s\n", best.value, (unsigned long long)best.index, (int)best.label_bytes,
               best.label ? best.label : "");
    }
    sluice_call_free(call);
    return ok;
}

int main(int argc, char **argv) {
    if (argc < 7) {
        fprintf(stderr, "usage: classes URL MODEL INPUT OUTPUT N NUMBER…\n");
        return 2;
    }
    float numbers[MOST];
    size_t n = 0;
    for (int i = 6; i < argc && n < MOST; i++) {
        numbers[n++] = strtof(argv[i], NULL);
    }
    sluice_client_options options = {.size = sizeof(options), .url = argv[1]};
    sluice_client *client = NULL;
    sluice_client_error error = {.size = sizeof(error)};
    int ok = sluice_client_open(&options, &client, &error) == SLUICE_CLIENT_OK &&
             ask(client, argv, numbers, n, &error);
    if (!ok) {
        fprintf(stderr, "classes: %s\n", error.text);
    }
    sluice_client_close(client);
    return !ok;
}
