/* Sends texts to a model as JSON and prints the result: http_json URL MODEL INPUT TEXT…
 *
 *     cc http_json.c -o http_json $(pkg-config --cflags --libs sluice)
 *
 * The model's input takes a batch of one BYTES each. In JSON a text is a string; in memory it is an
 * element with its length, which sluice_strings_pack writes and sluice_strings_next reads. */
#include <stdio.h>

#include <sluice/client.h>

static void print_elements(const sluice_tensor *tensor) {
    size_t at = 0, n;
    const char *text;
    while (sluice_strings_next(tensor, &at, &text, &n) == SLUICE_CLIENT_OK) {
        printf("%s: %.*s\n", tensor->name, (int)n, text);
    }
}

int main(int argc, char **argv) {
    if (argc < 5) {
        fprintf(stderr, "usage: http_json URL MODEL INPUT TEXT…\n");
        return 2;
    }
    char data[65536];
    const char *const *texts = (const char *const *)argv + 4;
    size_t n = (size_t)argc - 4, n_bytes = sluice_strings_bytes(texts, NULL, n);
    const int64_t dims[] = {(int64_t)n, 1};
    if (sluice_strings_pack(texts, NULL, n, data, sizeof(data)) != SLUICE_CLIENT_OK) {
        fprintf(stderr, "http_json: the texts have more than 65536 bytes\n");
        return 1;
    }
    sluice_tensor input = sluice_tensor_strings(argv[3], data, n_bytes, dims, 2);
    sluice_infer_request request = {.size = sizeof(request), .model = argv[2]};
    request.inputs = &input, request.n_inputs = 1, request.form = SLUICE_FORM_JSON;
    sluice_client_options options = {.size = sizeof(options), .url = argv[1]};
    sluice_client *client = NULL;
    sluice_call *call = NULL;
    sluice_client_error error = {.size = sizeof(error)};
    int ok = sluice_client_open(&options, &client, &error) == SLUICE_CLIENT_OK &&
             sluice_client_infer(client, &request, NULL, &call, &error) == SLUICE_CLIENT_OK;
    sluice_tensor output = {.size = sizeof(output)};
    for (size_t i = 0; ok && sluice_call_output(call, i, &output) == SLUICE_CLIENT_OK; i++) {
        print_elements(&output);
    }
    if (!ok) {
        fprintf(stderr, "http_json: %s\n", error.text);
    }
    sluice_call_free(call);
    sluice_client_close(client);
    return !ok;
}
