/* Sends texts to a model as JSON and prints the result: http_json URL MODEL INPUT TEXT…
 *
 *     cc http_json.c -o http_json $(pkg-config --cflags --libs sluice)
 *
 * The model's input takes a batch of one BYTES each. In JSON a text is a string; in memory each
 * element is its length in 4 bytes, little-endian, and its bytes. */
#include <stdio.h>
#include <string.h>

#include <sluice/client.h>

static size_t add_element(unsigned char *at, const char *text) {
    size_t n = strlen(text);
    for (int byte = 0; byte < 4; byte++) {
        *at++ = (unsigned char)(n >> 8 * byte);
    }
    memcpy(at, text, n);
    return 4 + n;
}

static void print_elements(const sluice_tensor *tensor) {
    const unsigned char *at = tensor->data, *end = at + tensor->n_bytes;
    while (at < end) {
        size_t n = at[0] | (size_t)at[1] << 8 | (size_t)at[2] << 16 | (size_t)at[3] << 24;
        printf("%s: %.*s\n", tensor->name, (int)n, (const char *)at + 4);
        at += 4 + n;
    }
}

int main(int argc, char **argv) {
    if (argc < 5) {
        fprintf(stderr, "usage: http_json URL MODEL INPUT TEXT…\n");
        return 2;
    }
    unsigned char data[65536];
    size_t n_bytes = 0;
    int64_t dims[] = {0, 1};
    for (int i = 4; i < argc && strlen(argv[i]) + 4 <= sizeof(data) - n_bytes; i++) {
        n_bytes += add_element(data + n_bytes, argv[i]);
        dims[0]++;
    }
    sluice_tensor input = {.size = sizeof(input), .name = argv[3], .datatype = SLUICE_BYTES};
    input.dims = dims, input.rank = 2, input.data = data, input.n_bytes = n_bytes;
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
