/* Sends N numbers to a model over TLS, with OpenSSL, and checks that the answer has the same bytes;
 * for each N once, over one connection: tls_openssl https://HOST[:PORT] MODEL INPUT N…
 *
 *     cc tls_openssl.c -o tls_openssl $(pkg-config --cflags --libs sluice openssl)
 *
 * Trusted are the system's certificates, or those in the file that SSL_CERT_FILE names. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "openssl_transport.h"

static int ask(sluice_client *client, char **argv, int64_t n, sluice_client_error *error) {
    const int64_t dims[] = {n};
    size_t n_bytes = (size_t)n * sizeof(float);
    float *numbers = calloc(1, n_bytes);
    sluice_tensor input = sluice_tensor_f32(argv[3], numbers, dims, 1);
    sluice_infer_request request = {.size = sizeof(request), .model = argv[2]};
    request.inputs = &input, request.n_inputs = 1;
    for (int64_t i = 0; numbers && i < n; i++) {
        numbers[i] = (float)i;
    }
    sluice_tensor output = {.size = sizeof(output)};
    sluice_call *call;
    int ok = sluice_client_infer(client, &request, NULL, &call, error) == SLUICE_CLIENT_OK;
    if (ok && sluice_call_output(call, 0, &output) == SLUICE_CLIENT_OK) {
        int same = output.n_bytes == n_bytes && memcmp(output.data, numbers, n_bytes) == 0;
        printf("%s\n", same ? "the same" : "something else");
    }
    sluice_call_free(call);
    free(numbers);
    return ok;
}

int main(int argc, char **argv) {
    if (argc < 5) {
        fprintf(stderr, "usage: tls_openssl https://HOST[:PORT] MODEL INPUT N…\n");
        return 2;
    }
    struct openssl tls = {SSL_CTX_new(TLS_client_method()), NULL};
    sluice_client_transport transport = openssl_transport(&tls);
    sluice_client_options options = {.size = sizeof(options), .url = argv[1]};
    options.transport = &transport;
    sluice_client *client = NULL;
    sluice_client_error error = {.size = sizeof(error)};
    signal(SIGPIPE, SIG_IGN);
    SSL_CTX_set_default_verify_paths(tls.settings);
    SSL_CTX_set_verify(tls.settings, SSL_VERIFY_PEER, NULL);
    int ok = sluice_client_open(&options, &client, &error) == SLUICE_CLIENT_OK;
    for (int i = 4; i < argc && ok; i++) {
        ok = ask(client, argv, atoll(argv[i]), &error);
    }
    if (!ok) {
        fprintf(stderr, "tls_openssl: %s\n", error.text);
    }
    sluice_client_close(client);
    SSL_CTX_free(tls.settings);
    return !ok;
}
