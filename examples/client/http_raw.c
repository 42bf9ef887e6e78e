/* Sends standard input, as it is, to a model that takes one element of BYTES, and writes the first
 * output's: http_raw URL MODEL <picture.jpg
 *
 *     cc http_raw.c -o http_raw $(pkg-config --cflags --libs sluice)
 *
 * A raw request has only these bytes: the server deduces name and shape. */
#include <stdio.h>

#include <sluice/client.h>

static unsigned char element[4 + (16 << 20)]; /* length, 4 bytes little-endian, and bytes */

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: http_raw URL MODEL <FILE\n");
        return 2;
    }
    size_t n = fread(element + 4, 1, sizeof(element) - 4, stdin);
    for (int byte = 0; byte < 4; byte++) {
        element[byte] = (unsigned char)(n >> 8 * byte);
    }
    const int64_t dims[] = {1};
    sluice_tensor input = {.size = sizeof(input), .name = "", .datatype = SLUICE_BYTES};
    input.dims = dims, input.rank = 1, input.data = element, input.n_bytes = 4 + n;
    sluice_infer_request request = {.size = sizeof(request), .model = argv[2]};
    request.inputs = &input, request.n_inputs = 1, request.form = SLUICE_FORM_RAW;

    sluice_client_options options = {.size = sizeof(options), .url = argv[1]};
    sluice_client *client = NULL;
    sluice_call *call = NULL;
    sluice_client_error error = {.size = sizeof(error)};
    int ok = sluice_client_open(&options, &client, &error) == SLUICE_CLIENT_OK &&
             sluice_client_infer(client, &request, NULL, &call, &error) == SLUICE_CLIENT_OK;
    sluice_tensor output = {.size = sizeof(output)};
    if (ok && sluice_call_output(call, 0, &output) == SLUICE_CLIENT_OK && output.n_bytes >= 4) {
        fwrite((const char *)output.data + 4, 1, output.n_bytes - 4, stdout);
    } else if (!ok) {
        fprintf(stderr, "http_raw: %s\n", error.text);
    }
    sluice_call_free(call);
    sluice_client_close(client);
    return !ok;
}
