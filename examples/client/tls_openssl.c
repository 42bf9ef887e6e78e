/* Sends N numbers to a model over TLS, with OpenSSL, and counts those that come back as they went:
 *     tls_openssl https://HOST[:PORT] MODEL INPUT N
 *
 *     cc tls_openssl.c -o tls_openssl $(pkg-config --cflags --libs sluice openssl)
 *
 * It trusts whom the system trusts, or the certificates in the file that SSL_CERT_FILE names. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "openssl_transport.h"

static int ask(sluice_client *client, char **argv, sluice_client_error *error) {
    size_t n = (size_t)atoi(argv[4]);
    float *numbers = calloc(n + 1, sizeof(*numbers));
    const int64_t dims[] = {(int64_t)n};
    sluice_tensor input = {argv[3], SLUICE_FP32, dims, 1, numbers, n * sizeof(*numbers)};
    sluice_infer_request request = {.size = sizeof(request), .model = argv[2]};
    request.inputs = &input, request.n_inputs = 1;
    sluice_infer_answer answer = {.size = sizeof(answer)};
    for (size_t i = 0; i < n; i++) {
        numbers[i] = (float)i;
    }
    int ok = sluice_client_infer(client, &request, &answer, error) == SLUICE_CLIENT_OK;
    if (ok) {
        size_t same = 0;
        const float *came = answer.outputs[0].data;
        while (same < answer.outputs[0].n_bytes / sizeof(*came) && came[same] == numbers[same]) {
            same++;
        }
        printf("%zu\n", same);
    }
    free(numbers);
    return ok;
}

int main(int argc, char **argv) {
    struct openssl tls = {SSL_CTX_new(TLS_client_method()), NULL};
    sluice_client_transport transport = {sizeof(transport), &tls,          openssl_start,
                                         openssl_read,      openssl_write, openssl_stop,
                                         openssl_reason};
    sluice_client_options options = {.size = sizeof(options), .transport = &transport};
    options.url = argc == 5 ? argv[1] : "";
    sluice_client *client = NULL;
    sluice_client_error error;
    signal(SIGPIPE, SIG_IGN);
    SSL_CTX_set_default_verify_paths(tls.settings);
    SSL_CTX_set_verify(tls.settings, SSL_VERIFY_PEER, NULL);
    int ok = sluice_client_open(&options, &client, &error) == SLUICE_CLIENT_OK &&
             ask(client, argv, &error);
    if (!ok) {
        fprintf(stderr, "tls_openssl: %s\n", error.text);
    }
    sluice_client_close(client);
    SSL_CTX_free(tls.settings);
    return !ok;
}
