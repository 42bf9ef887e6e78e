/* Prints the version of a model of a server that requires an API key:
 *     http_key URL MODEL KEY TRACEPARENT
 *
 *     cc http_key.c -o http_key $(pkg-config --cflags --libs sluice)
 *
 * The key is sent with each call of the client ("Authorization: Bearer KEY"), the traceparent with
 * one. When the server refuses the key, the header of its answer tells which kind it wants. */
#include <stdio.h>

#include <sluice/client.h>

static void print_header(const sluice_call *call, const char *name) {
    sluice_header header = {.size = sizeof(header)};
    if (sluice_call_find_header(call, name, &header) == SLUICE_CLIENT_OK) {
        printf("%s: %s\n", header.name, header.value);
    }
}

static int ask(sluice_client *client, char **argv, sluice_client_error *error) {
    sluice_call_options options = {.size = sizeof(options), .traceparent = argv[4]};
    sluice_model_metadata model = {.size = sizeof(model)};
    sluice_call *call = NULL;
    int ok = sluice_client_model_metadata(client, argv[2], NULL, &options, &call, error) ==
             SLUICE_CLIENT_OK;
    if (ok) {
        sluice_call_model(call, &model);
        printf("%s version %s\n", model.name, model.version);
        print_header(call, "Content-Type");
    } else {
        print_header(call, "WWW-Authenticate");
    }
    sluice_call_free(call);
    return ok;
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: http_key URL MODEL KEY TRACEPARENT\n");
        return 2;
    }
    const sluice_header headers[] = {
        {.size = sizeof(sluice_header), .name = "User-Agent", .value = "http_key/1.0"}};
    sluice_client_options options = {.size = sizeof(options), .url = argv[1]};
    options.headers = headers, options.n_headers = 1, options.bearer_token = argv[3];
    sluice_client *client = NULL;
    sluice_client_error error = {.size = sizeof(error)};
    int ok = sluice_client_open(&options, &client, &error) == SLUICE_CLIENT_OK &&
             ask(client, argv, &error);
    if (!ok) {
        fprintf(stderr, "http_key: %s\n", error.text);
    }
    sluice_client_close(client);
    return !ok;
}
