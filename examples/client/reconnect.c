/* Prints a server's name and version for each line of standard input, or why it does not answer:
 *     reconnect URL [SECONDS]
 *
 *     cc reconnect.c -o reconnect $(pkg-config --cflags --libs sluice)
 *
 * It has one client all the time. The server may be stopped and started again between two lines:
 * the client notices that its connection has ended, and makes another. With SECONDS it tries for so
 * long to reach a server that is not there yet: a retry policy of its calls. */
#include <stdio.h>
#include <stdlib.h>

#include <sluice/client.h>

static void ask(sluice_client *client) {
    sluice_client_error error = {.size = sizeof(error)};
    sluice_server_metadata server = {.size = sizeof(server)};
    sluice_call *call;
    if (sluice_client_server_metadata(client, NULL, &call, &error) != SLUICE_CLIENT_OK) {
        printf("%s: %s%s\n", sluice_status_name(error.status), error.text,
               error.may_have_run ? " (the request may have been received)" : "");
    } else if (sluice_call_server(call, &server) == SLUICE_CLIENT_OK) {
        printf("%s %s\n", server.name, server.version);
    }
    sluice_call_free(call);
    fflush(stdout);
}

int main(int argc, char **argv) {
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: reconnect URL [SECONDS]\n");
        return 2;
    }
    sluice_retry_policy retry = {
        .size = sizeof(retry), .max_attempts = UINT32_MAX, .budget = 10000};
    retry.backoff_ns = 10000000;
    retry.max_backoff_ns = 200000000;
    sluice_client_options options = {.size = sizeof(options), .url = argv[1]};
    if (argc > 2) {
        options.retry = &retry;
        options.timeout_ns = (uint64_t)(strtod(argv[2], NULL) * 1e9);
    }
    sluice_client *client;
    sluice_client_error error = {.size = sizeof(error)};
    if (sluice_client_open(&options, &client, &error) != SLUICE_CLIENT_OK) {
        fprintf(stderr, "reconnect: %s\n", error.text);
        return 1;
    }
    for (int c = getchar(); c != EOF; c = getchar()) {
        if (c == '\n') {
            ask(client);
        }
    }
    sluice_client_close(client);
    return 0;
}
