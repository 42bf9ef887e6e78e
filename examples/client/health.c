/* Asks a server over TLS whether it is ready, with an API key:
 *     health https://HOST[:PORT] CA_FILE KEY
 *
 *     cc health.c -o health $(pkg-config --cflags --libs sluice)
 *
 * CA_FILE has the certificates that the server's must be signed by. Exit status: 0 if it is ready.
 * health.cpp is the same in C++17. */
#include <stdio.h>

#include <sluice/client.h>

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: health URL CA_FILE KEY\n");
        return 2;
    }
    sluice_tls_options tls = {.size = sizeof(tls), .ca_file = argv[2]};
    sluice_client_options options = {.size = sizeof(options), .url = argv[1], .tls = &tls};
    options.bearer_token = argv[3];
    sluice_client *client = NULL;
    sluice_client_error error = {.size = sizeof(error)};
    int32_t ready = 0;
    if (sluice_client_open(&options, &client, &error) == SLUICE_CLIENT_OK &&
        sluice_client_is_ready(client, NULL, &ready, &error) == SLUICE_CLIENT_OK) {
        printf("%s\n", ready ? "ready" : "not ready");
    } else {
        fprintf(stderr, "health: %s: %s\n", sluice_status_name(error.status), error.text);
    }
    sluice_client_close(client);
    return !ready;
}
