/* Sends a JSON object to a model and prints each answer on a line, while they come:
 *     generate http://HOST:PORT MODEL '{"IN": "a text", "responses": 3}'
 *
 *     cc generate.c -o generate $(pkg-config --cflags --libs sluice)
 *
 * This is the generate extension: members are inputs and parameters, by name. */
#include <stdio.h>

#include <sluice/client.h>

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: generate URL MODEL JSON\n");
        return 2;
    }
    sluice_client_options options = {.size = sizeof(options), .url = argv[1]};
    sluice_generate_request request = {.size = sizeof(request), .model = argv[2], .json = argv[3]};
    sluice_client *client = NULL;
    sluice_call *call = NULL;
    sluice_client_error error = {.size = sizeof(error)};
    int ok = sluice_client_open(&options, &client, &error) == SLUICE_CLIENT_OK &&
             sluice_client_start_generate_stream(client, &request, NULL, &call, &error) ==
                 SLUICE_CLIENT_OK;
    sluice_client_status status = SLUICE_CLIENT_OK;
    const char *text;
    while (ok && (status = sluice_call_wait_next(call, &error)) == SLUICE_CLIENT_OK) {
        if (sluice_call_text(call, &text, NULL) == SLUICE_CLIENT_OK) {
            printf("%s\n", text);
            fflush(stdout);
        }
    }
    ok = ok && status == SLUICE_CLIENT_END;
    if (!ok) {
        fprintf(stderr, "generate: %s\n", error.text);
    }
    sluice_call_free(call);
    sluice_client_close(client);
    return !ok;
}
