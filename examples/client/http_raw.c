/* Sends standard input, as it is, to a model that takes one element of BYTES, and writes the first
 * output's: http_raw URL MODEL <picture.jpg
 *
 *     cc http_raw.c -o http_raw $(pkg-config --cflags --libs sluice)
 *
 * A raw request has only these bytes: the server deduces name and shape. */
#include <stdio.h>

#include <sluice/client.h>

static char file[16 << 20], packed[(16 << 20) + 4];

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: http_raw URL MODEL <FILE\n");
        return 2;
    }
    const char *texts[] = {file};
    const int64_t dims[] = {1};
    size_t n = fread(file, 1, sizeof(file), stdin);
    sluice_strings_pack(texts, &n, 1, packed, sizeof(packed));
    sluice_tensor input =
        sluice_tensor_strings("", packed, sluice_strings_bytes(texts, &n, 1), dims, 1);
    sluice_infer_request request = {.size = sizeof(request), .model = argv[2]};
    request.inputs = &input, request.n_inputs = 1, request.form = SLUICE_FORM_RAW;

    sluice_client_options options = {.size = sizeof(options), .url = argv[1]};
    sluice_client *client = NULL;
    sluice_call *call = NULL;
    sluice_client_error error = {.size = sizeof(error)};
    int ok = sluice_client_open(&options, &client, &error) == SLUICE_CLIENT_OK &&
             sluice_client_infer(client, &request, NULL, &call, &error) == SLUICE_CLIENT_OK;
    sluice_tensor output = {.size = sizeof(output)};
    size_t at = 0;
    const char *text;
    if (ok && sluice_call_output(call, 0, &output) == SLUICE_CLIENT_OK &&
        sluice_strings_next(&output, &at, &text, &n) == SLUICE_CLIENT_OK) {
        fwrite(text, 1, n, stdout);
    } else if (!ok) {
        fprintf(stderr, "http_raw: %s\n", error.text);
    }
    sluice_call_free(call);
    sluice_client_close(client);
    return !ok;
}
