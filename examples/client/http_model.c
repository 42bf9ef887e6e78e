/* Prints whether a model is ready, and its inputs and outputs: http_model URL MODEL
 *
 *     cc http_model.c -o http_model $(pkg-config --cflags --libs sluice) */
#include <stdio.h>

#include <sluice/client.h>

static void print_tensors(const char *kind, const sluice_tensor_spec *specs, size_t n) {
    for (size_t i = 0; i < n; i++) {
        printf("%s %s: datatype %d, shape [", kind, specs[i].name, (int)specs[i].datatype);
        for (size_t d = 0; d < specs[i].rank; d++) {
            printf("%s%lld", d > 0 ? "," : "", (long long)specs[i].dims[d]);
        }
        printf("]\n");
    }
}

static int ask(sluice_client *client, const char *name, sluice_client_error *error) {
    int32_t ready = 0;
    sluice_model_metadata model = {.size = sizeof(model)};
    if (sluice_client_model_is_ready(client, name, NULL, &ready, error) != SLUICE_CLIENT_OK ||
        sluice_client_model_metadata(client, name, NULL, &model, error) != SLUICE_CLIENT_OK) {
        return 0;
    }
    printf("%s version %s, %s\n", model.name, model.version, ready ? "ready" : "not ready");
    print_tensors("input", model.inputs, model.n_inputs);
    print_tensors("output", model.outputs, model.n_outputs);
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: http_model URL MODEL\n");
        return 2;
    }
    sluice_client_options options = {.size = sizeof(options), .url = argv[1]};
    sluice_client *client = NULL;
    sluice_client_error error = {.size = sizeof(error)};
    int ok = sluice_client_open(&options, &client, &error) == SLUICE_CLIENT_OK &&
             ask(client, argv[2], &error);
    if (!ok) {
        fprintf(stderr, "http_model: %s\n", error.text);
    }
    sluice_client_close(client);
    return !ok;
}
