/* Loads or unloads a model, or prints what a server knows about its models, as JSON:
 *     http_repository URL load MODEL [CONFIG]
 *     http_repository URL unload MODEL
 *     http_repository URL index
 *     http_repository URL config|statistics MODEL
 *
 *     cc http_repository.c -o http_repository $(pkg-config --cflags --libs sluice)
 *
 * CONFIG is JSON that takes the place of the model's configuration. */
#include <stdio.h>
#include <string.h>

#include <sluice/client.h>

static sluice_client_status ask(sluice_client *client, const char *what, const char *model,
                                const char *config, sluice_call **call,
                                sluice_client_error *error) {
    if (strcmp(what, "load") == 0) {
        return sluice_client_load(client, model, config, NULL, error);
    }
    if (strcmp(what, "unload") == 0) {
        return sluice_client_unload(client, model, NULL, error);
    }
    if (strcmp(what, "config") == 0) {
        return sluice_client_model_config(client, model, NULL, NULL, call, error);
    }
    return strcmp(what, "index") == 0
               ? sluice_client_repository_index(client, NULL, call, error)
               : sluice_client_statistics(client, model, NULL, NULL, call, error);
}

int main(int argc, char **argv) {
    if (argc < 3 || argc > 5) {
        fprintf(stderr, "usage: http_repository URL load|unload|index|config|statistics …\n");
        return 2;
    }
    sluice_client_options options = {.size = sizeof(options), .url = argv[1]};
    sluice_client *client = NULL;
    sluice_call *call = NULL;
    sluice_client_error error = {.size = sizeof(error)};
    const char *model = argc > 3 ? argv[3] : NULL, *config = argc > 4 ? argv[4] : NULL, *text;
    int ok = sluice_client_open(&options, &client, &error) == SLUICE_CLIENT_OK &&
             ask(client, argv[2], model, config, &call, &error) == SLUICE_CLIENT_OK;
    if (!ok) {
        fprintf(stderr, "http_repository: %s: %s\n", sluice_status_name(error.status), error.text);
    } else if (sluice_call_text(call, &text, NULL) == SLUICE_CLIENT_OK) {
        printf("%s\n", text);
    }
    sluice_call_free(call);
    sluice_client_close(client);
    return !ok;
}
