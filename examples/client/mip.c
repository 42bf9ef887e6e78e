/* Sends a batch to a MIP server, one text or JSON value an element, and prints the answers:
 *     mip tcp://HOST:PORT|unix:///PATH text|json ITEM…
 *
 *     cc mip.c -o mip $(pkg-config --cflags --libs sluice) */
#include <stdio.h>
#include <string.h>

#include <sluice/client_mip.h>

enum { MOST = 100 };

/* The model has one input; each item is one batch element. */
static int ask(sluice_client *client, const sluice_mip_item *items, uint32_t n,
               sluice_client_error *error) {
    sluice_mip_request request = {.size = sizeof(request), .items = items};
    request.n_inputs = 1, request.batch = n;
    sluice_mip_answer answer = {.size = sizeof(answer)};
    sluice_mip_item item = {.size = sizeof(item)};
    sluice_call *call;
    int ok = sluice_client_mip_infer(client, &request, NULL, &call, error) == SLUICE_CLIENT_OK;
    if (ok) {
        sluice_call_mip_answer(call, &answer);
    }
    for (uint32_t element = 0; element < answer.batch; element++) {
        printf("%u:", element);
        for (uint32_t output = 0; output < answer.n_outputs; output++) {
            sluice_call_mip_item(call, element * answer.n_outputs + output, &item);
            printf(" %.*s", (int)item.n_bytes, (const char *)item.data);
        }
        printf("\n");
    }
    sluice_call_free(call);
    return ok;
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: mip tcp://HOST:PORT|unix:///PATH text|json ITEM…\n");
        return 2;
    }
    sluice_mip_item items[MOST];
    uint32_t n = 0;
    for (int i = 3; i < argc && n < MOST; i++) {
        items[n].size = sizeof(*items);
        items[n].type = strcmp(argv[2], "json") == 0 ? SLUICE_MIP_JSON : SLUICE_MIP_TEXT;
        items[n].data = argv[i];
        items[n++].n_bytes = strlen(argv[i]);
    }
    sluice_client_options options = {.size = sizeof(options), .url = argv[1]};
    sluice_client *client = NULL;
    sluice_client_error error = {.size = sizeof(error)};
    int ok = sluice_client_open(&options, &client, &error) == SLUICE_CLIENT_OK &&
             ask(client, items, n, &error);
    if (!ok) {
        fprintf(stderr, "mip: %s\n", error.text);
    }
    sluice_client_close(client);
    return !ok;
}
