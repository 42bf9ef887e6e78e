/* Sends pictures to a MIP server, one after the other, and prints the answers:
 *     mip_image tcp://HOST:PORT|unix:///PATH FILE…
 *
 *     cc mip_image.c -o mip_image $(pkg-config --cflags --libs sluice)
 *
 * The files are sent unchanged (JPEG, PNG, WebP, GIF): the server decodes them. */
#include <stdio.h>

#include <sluice/client.h>

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
    sluice_mip_item item = {SLUICE_MIP_IMAGE, picture, read_file(path)};
    sluice_mip_request request = {.size = sizeof(request), .items = &item};
    request.n_inputs = 1, request.batch = 1;
    sluice_mip_answer answer = {.size = sizeof(answer)};
    if (item.n_bytes == 0) {
        snprintf(error->text, sizeof(error->text), "%s can't be read", path);
        return 0;
    }
    if (sluice_client_mip_infer(client, &request, &answer, error) != SLUICE_CLIENT_OK) {
        return 0;
    }
    for (uint32_t i = 0; i < answer.n_outputs; i++) {
        printf("%s: %.*s\n", path, (int)answer.items[i].n_bytes,
               (const char *)answer.items[i].data);
    }
    return 1;
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
