/* Prints the name and version of a server over TLS:
 *     https https://HOST[:PORT] [CA_FILE [SERVER_NAME [CERT_FILE KEY_FILE]]]
 *
 *     cc https.c -o https $(pkg-config --cflags --libs sluice)
 *
 * CA_FILE has the trusted certificates, SERVER_NAME is the name that the server's certificate must
 * have, CERT_FILE and KEY_FILE are the client's certificate for a server that requires one. "-":
 * the default, which is the system's certificates, the host, and none. */
#include <stdio.h>
#include <string.h>

#include <sluice/client.h>

static const char *argument(int argc, char **argv, int index) {
    return index < argc && strcmp(argv[index], "-") != 0 ? argv[index] : NULL;
}

static int ask(sluice_client *client, sluice_client_error *error) {
    sluice_server_metadata server = {.size = sizeof(server)};
    sluice_call *call;
    int ok = sluice_client_server_metadata(client, NULL, &call, error) == SLUICE_CLIENT_OK;
    if (ok && sluice_call_server(call, &server) == SLUICE_CLIENT_OK) {
        printf("%s %s\n", server.name, server.version);
    }
    sluice_call_free(call);
    return ok;
}

int main(int argc, char **argv) {
    if (argc < 2 || argc > 6 || argc == 5) {
        fprintf(stderr, "usage: https URL [CA_FILE [SERVER_NAME [CERT_FILE KEY_FILE]]]\n");
        return 2;
    }
    sluice_tls_options tls = {.size = sizeof(tls)};
    tls.ca_file = argument(argc, argv, 2);
    tls.server_name = argument(argc, argv, 3);
    tls.cert_file = argument(argc, argv, 4);
    tls.key_file = argument(argc, argv, 5);
    sluice_client_options options = {.size = sizeof(options), .url = argv[1], .tls = &tls};
    sluice_client *client = NULL;
    sluice_client_error error = {.size = sizeof(error)};
    int ok =
        sluice_client_open(&options, &client, &error) == SLUICE_CLIENT_OK && ask(client, &error);
    if (!ok) {
        fprintf(stderr, "https: %s: %s\n", sluice_status_name(error.status), error.text);
    }
    sluice_client_close(client);
    return !ok;
}
