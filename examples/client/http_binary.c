/* Sends numbers to a model in binary and prints what comes back: http_binary URL MODEL NUMBER…
 *
 *     cc http_binary.c -o http_binary $(pkg-config --cflags --libs sluice)
 *
 * The model's first input is FP32 and takes a row of any length; what it is called is asked first.
 * The numbers leave from our memory and the answer's land in it: nothing is copied between. */
#include <stdio.h>
#include <stdlib.h>

#include <sluice/client.h>

enum { MOST = 100 };

static int ask(sluice_client *client, const char *model, const float *numbers, size_t n,
               sluice_client_error *error) {
    sluice_model_metadata about = {.size = sizeof(about)};
    if (sluice_client_model_metadata(client, model, NULL, &about, error) != SLUICE_CLIENT_OK) {
        return 0;
    }
    char name[128]; /* what a call gave lives until the next call */
    snprintf(name, sizeof(name), "%s", about.n_inputs > 0 ? about.inputs[0].name : "");

    const int64_t dims[] = {(int64_t)n};
    sluice_tensor input = {name, SLUICE_FP32, dims, 1, numbers, n * sizeof(*numbers)};
    float came[MOST];
    sluice_buffer buffer = {came, sizeof(came)};
    sluice_infer_request request = {.size = sizeof(request), .model = model};
    request.inputs = &input, request.n_inputs = 1;
    request.buffers = &buffer, request.n_buffers = 1;
    sluice_infer_answer answer = {.size = sizeof(answer)};
    if (sluice_client_infer(client, &request, &answer, error) != SLUICE_CLIENT_OK) {
        return 0;
    }
    printf("%s of %s version %s:", answer.outputs[0].name, answer.model, answer.version);
    for (size_t i = 0; i < answer.outputs[0].n_bytes / sizeof(*came); i++) {
        printf(" %g", (double)came[i]);
    }
    printf("\n");
    return 1;
}

int main(int argc, char **argv) {
    float numbers[MOST];
    size_t n = 0;
    for (int i = 3; i < argc && n < MOST; i++) {
        numbers[n++] = strtof(argv[i], NULL);
    }
    sluice_client_options options = {.size = sizeof(options), .url = argc > 2 ? argv[1] : ""};
    sluice_client *client = NULL;
    sluice_client_error error;
    int ok = sluice_client_open(&options, &client, &error) == SLUICE_CLIENT_OK &&
             ask(client, argv[2], numbers, n, &error);
    if (!ok) {
        fprintf(stderr, "http_binary: %s\n", error.text);
    }
    sluice_client_close(client);
    return !ok;
}
