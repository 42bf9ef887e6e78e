/* Sends pictures to a MIP server, one after the other, and prints the answers:
 *     mip_image tcp://HOST:PORT|unix:///PATH FILE…
 *
 *     cc mip_image.c -o mip_image $(pkg-config --cflags --libs sluice)
 *
 * The files are sent unchanged (JPEG, PNG, WebP, GIF): the server decodes them. */
#include <stdio.h>

#include <sluice/client_mip.h>

static unsigned char picture[16 << 20];

/* Returns: the size of the file; 0 if it can't be read. */
static size_t read_file(const char *path) {
    FILE *file = fopen(path, "rb");
    size_t n = file ? fread(picture, 1, sizeof(picture), file) : 0;
    if (file) {
        fclose(file);
    }
    return n;
}

static int ask(sluice_client *client, const char *path, sluice_client_error *error) {
    sluice_mip_item item = {.size = sizeof(item), .type = SLUICE_MIP_IMAGE, .data = picture};
    sluice_mip_request request = {.size = sizeof(request), .items = &item};
    request.n_inputs = 1, request.batch = 1;
    item.n_bytes = read_file(path);
    if (item.n_bytes == 0) {
        snprintf(error->text, sizeof(error->text), "%s can't be read", path);
        return 0;
    }
    sluice_mip_item made = {.size = sizeof(made)};
    sluice_call *call;
    int ok = sluice_client_mip_infer(client, &request, NULL, &call, error) == SLUICE_CLIENT_OK;
    for (size_t i = 0; ok && sluice_call_mip_item(call, i, &made) == SLUICE_CLIENT_OK; i++) {
        printf("%s: %.*s\n", path, (int)made.n_bytes, (const char *)made.data);
    }
    sluice_call_free(call);
    return ok;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: mip_image tcp://HOST:PORT|unix:///PATH FILE…\n");
        return 2;
    }
    sluice_client_options options = {.size = sizeof(options), .url = argv[1]};
    sluice_client *client;
    sluice_client_error error = {.size = sizeof(error)};
    int ok = sluice_client_open(&options, &client, &error) == SLUICE_CLIENT_OK;
    for (int i = 2; i < argc && ok; i++) {
        ok = ask(client, argv[i], &error);
    }
    if (!ok) {
        fprintf(stderr, "mip_image: %s\n", error.text);
    }
    sluice_client_close(client);
    return !ok;
}
