/* Prints whether a model is ready, and its inputs and outputs: http_model URL MODEL
 *
 *     cc http_model.c -o http_model $(pkg-config --cflags --libs sluice) */
#include <stdio.h>

#include <sluice/client.h>

static void print_tensor(const char *kind, const sluice_tensor_spec *spec) {
    printf("%s %s: %s, shape [", kind, spec->name, sluice_datatype_name((int)spec->datatype));
    for (size_t d = 0; d < spec->rank; d++) {
        printf("%s%lld", d > 0 ? "," : "", (long long)spec->dims[d]);
    }
    printf("]\n");
}

static void print_model(const sluice_call *call, int32_t ready) {
    sluice_model_metadata model = {.size = sizeof(model)};
    sluice_tensor_spec spec = {.size = sizeof(spec)};
    sluice_call_model(call, &model);
    printf("%s version %s, %s\n", model.name, model.version, ready ? "ready" : "not ready");
    for (size_t i = 0; sluice_call_model_input(call, i, &spec) == SLUICE_CLIENT_OK; i++) {
        print_tensor("input", &spec);
    }
    for (size_t i = 0; sluice_call_model_output(call, i, &spec) == SLUICE_CLIENT_OK; i++) {
        print_tensor("output", &spec);
    }
}

static int ask(sluice_client *client, const char *name, sluice_client_error *error) {
    int32_t ready;
    sluice_call *call = NULL;
    int ok =
        sluice_client_model_is_ready(client, name, NULL, NULL, &ready, error) == SLUICE_CLIENT_OK &&
        sluice_client_model_metadata(client, name, NULL, NULL, &call, error) == SLUICE_CLIENT_OK;
    if (ok) {
        print_model(call, ready);
    }
    sluice_call_free(call);
    return ok;
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
