/* Sends numbers to a model and gets its answer through shared memory of this machine:
 *     shared_memory URL MODEL INPUT OUTPUT NUMBER…
 *
 *     cc shared_memory.c -o shared_memory $(pkg-config --cflags --libs sluice)
 *
 * The model's input and output are FP32 of as many numbers. Only their place is sent: the server
 * maps the same object. Its first half has the input, the second the output. */
#include <stdio.h>
#include <stdlib.h>

#include <sluice/client.h>

static int ask(sluice_client *client, char **argv, size_t n, float *numbers,
               sluice_client_error *error) {
    const int64_t dims[] = {(int64_t)n};
    sluice_tensor input = sluice_tensor_f32(argv[3], NULL, dims, 1);
    input.shm_region = "example";
    sluice_wanted wanted = {.size = sizeof(wanted), .name = argv[4], .shm_region = "example"};
    wanted.shm_offset = wanted.shm_bytes = n * sizeof(*numbers);
    sluice_infer_request request = {.size = sizeof(request), .model = argv[2]};
    request.inputs = &input, request.n_inputs = 1;
    request.wanted = &wanted, request.n_wanted = 1;
    sluice_tensor output = {.size = sizeof(output)};
    sluice_call *call;
    int ok = sluice_client_infer(client, &request, NULL, &call, error) == SLUICE_CLIENT_OK &&
             sluice_call_output(call, 0, &output) == SLUICE_CLIENT_OK;
    for (size_t i = 0; i < output.n_bytes / sizeof(*numbers); i++) {
        printf("%g\n", (double)numbers[n + i]);
    }
    sluice_call_free(call);
    return ok;
}

int main(int argc, char **argv) {
    if (argc < 6) {
        fprintf(stderr, "usage: shared_memory URL MODEL INPUT OUTPUT NUMBER…\n");
        return 2;
    }
    size_t n = (size_t)argc - 5, n_bytes = 2 * n * sizeof(float);
    sluice_client_options options = {.size = sizeof(options), .url = argv[1]};
    sluice_client *client = NULL;
    sluice_shm *shm = NULL;
    sluice_client_error error = {.size = sizeof(error)};
    int ok = sluice_client_open(&options, &client, &error) == SLUICE_CLIENT_OK &&
             sluice_shm_create(NULL, n_bytes, &shm, &error) == SLUICE_CLIENT_OK &&
             sluice_client_register_shm(client, "example", sluice_shm_key(shm), 0, n_bytes, NULL,
                                        &error) == SLUICE_CLIENT_OK;
    if (ok) {
        float *numbers = sluice_shm_data(shm);
        for (size_t i = 0; i < n; i++) {
            numbers[i] = strtof(argv[5 + i], NULL);
        }
        ok = ask(client, argv, n, numbers, &error);
        sluice_client_unregister_shm(client, "example", NULL, NULL);
    }
    if (!ok) {
        fprintf(stderr, "shared_memory: %s\n", error.text);
    }
    sluice_shm_free(shm);
    sluice_client_close(client);
    return !ok;
}
