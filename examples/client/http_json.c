/* Sends texts to a model as JSON and prints what comes back: http_json URL MODEL INPUT TEXT…
 *
 *     cc http_json.c -o http_json $(pkg-config --cflags --libs sluice)
 *
 * The model's input takes a batch of BYTES. In JSON a text is a string; in memory, here and where
 * tensors travel in binary, each element is a 4-byte little-endian length and the bytes. */
#include <stdio.h>
#include <string.h>

#include <sluice/client.h>

static size_t length_of(const unsigned char *at) {
    return at[0] | (size_t)at[1] << 8 | (size_t)at[2] << 16 | (size_t)at[3] << 24;
}

static void print_texts(const sluice_tensor *output) {
    const unsigned char *at = output->data, *end = at + output->n_bytes;
    for (; at < end; at += 4 + length_of(at)) {
        printf("%s: %.*s\n", output->name, (int)length_of(at), (const char *)at + 4);
    }
}

int main(int argc, char **argv) {
    unsigned char data[4096];
    size_t n_bytes = 0;
    for (int i = 4; i < argc; i++) {
        size_t n = strlen(argv[i]);
        if (n + 4 > sizeof(data) - n_bytes) {
            break;
        }
        for (int byte = 0; byte < 4; byte++) {
            data[n_bytes++] = (unsigned char)(n >> 8 * byte);
        }
        memcpy(data + n_bytes, argv[i], n);
        n_bytes += n;
    }
    const int64_t dims[] = {argc - 4, 1};
    sluice_tensor input = {argc > 4 ? argv[3] : "", SLUICE_BYTES, dims, 2, data, n_bytes};
    sluice_infer_request request = {.size = sizeof(request), .form = SLUICE_FORM_JSON};
    request.model = argc > 4 ? argv[2] : "";
    request.inputs = &input, request.n_inputs = 1;
    sluice_infer_answer answer = {.size = sizeof(answer)};

    sluice_client_options options = {.size = sizeof(options), .url = argc > 4 ? argv[1] : ""};
    sluice_client *client = NULL;
    sluice_client_error error;
    int ok = sluice_client_open(&options, &client, &error) == SLUICE_CLIENT_OK &&
             sluice_client_infer(client, &request, &answer, &error) == SLUICE_CLIENT_OK;
    if (ok) {
        print_texts(&answer.outputs[0]);
    } else {
        fprintf(stderr, "http_json: %s\n", error.text);
    }
    sluice_client_close(client);
    return !ok;
}
