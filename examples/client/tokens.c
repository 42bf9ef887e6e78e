/* Prints the answers of a decoupled model, over gRPC, while they come:
 *     tokens grpc://HOST:PORT MODEL INPUT OUTPUT TEXT N
 *
 *     cc tokens.c -o tokens $(pkg-config --cflags --libs sluice)
 *
 * Input and output are BYTES of one element. The request's parameter `responses` is N, which
 * models/tokens and models like it take as the number of answers. */
#include <stdio.h>
#include <stdlib.h>

#include <sluice/client.h>

/* Queues the request, and that there is no other. */
static int ask(sluice_call *call, char **argv, sluice_client_error *error) {
    static char packed[65536];
    const char *texts[] = {argv[5]};
    const int64_t dims[] = {1};
    if (sluice_strings_pack(texts, NULL, 1, packed, sizeof(packed)) != SLUICE_CLIENT_OK) {
        snprintf(error->text, sizeof(error->text), "the text is too long");
        return 0;
    }
    sluice_tensor input =
        sluice_tensor_strings(argv[3], packed, sluice_strings_bytes(texts, NULL, 1), dims, 1);
    sluice_parameter n = sluice_parameter_int64("responses", strtoll(argv[6], NULL, 10));
    sluice_infer_request request = {.size = sizeof(request), .model = argv[2]};
    request.inputs = &input, request.n_inputs = 1, request.params = &n, request.n_params = 1;
    int ok = sluice_call_send(call, &request, error) == SLUICE_CLIENT_OK;
    sluice_call_half_close(call);
    return ok;
}

static void print(const sluice_call *call, const char *name) {
    sluice_tensor output = {.size = sizeof(output)};
    size_t at = 0, n_bytes;
    const char *text;
    if (sluice_call_find_output(call, name, &output) == SLUICE_CLIENT_OK &&
        sluice_strings_next(&output, &at, &text, &n_bytes) == SLUICE_CLIENT_OK) {
        printf("%.*s\n", (int)n_bytes, text);
        fflush(stdout);
    }
}

int main(int argc, char **argv) {
    if (argc != 7) {
        fprintf(stderr, "usage: tokens URL MODEL INPUT OUTPUT TEXT N\n");
        return 2;
    }
    sluice_client_options options = {.size = sizeof(options), .url = argv[1]};
    sluice_client *client = NULL;
    sluice_call *call = NULL;
    sluice_client_error error = {.size = sizeof(error)};
    int ok = sluice_client_open(&options, &client, &error) == SLUICE_CLIENT_OK &&
             sluice_client_start_stream(client, NULL, &call, &error) == SLUICE_CLIENT_OK &&
             ask(call, argv, &error);
    sluice_client_status status = SLUICE_CLIENT_OK;
    while (ok && (status = sluice_call_wait_next(call, &error)) == SLUICE_CLIENT_OK) {
        print(call, argv[4]);
    }
    ok = ok && status == SLUICE_CLIENT_END;
    if (!ok) {
        fprintf(stderr, "tokens: %s\n", error.text);
    }
    sluice_call_free(call);
    sluice_client_close(client);
    return !ok;
}
