/* Asks a MIP server about pictures, one after the other over one connection, and prints what it says:
 *     mip_image tcp://HOST:PORT|unix:///PATH FILE…
 *
 *     cc mip_image.c -o mip_image $(pkg-config --cflags --libs sluice)
 *
 * The files go as they are (JPEG, PNG, WebP, GIF): decoding them is the server's work. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <sluice/client.h>

static unsigned char picture[16 << 20];

/* Returns: the size of the file; 0 when there is nothing to send. */
static size_t read_file(const char *path) {
    FILE *file = fopen(path, "rb");
    size_t n = file ? fread(picture, 1, sizeof(picture), file) : 0;
    if (n == 0) {
        fprintf(stderr, "mip_image: %s: %s\n", path, file ? "empty" : strerror(errno));
    }
    if (file) {
        fclose(file);
    }
    return n;
}

static int ask(sluice_client *client, const char *path) {
    sluice_client_error error;
    sluice_mip_item item = {SLUICE_MIP_IMAGE, picture, read_file(path)};
    sluice_mip_request request = {.size = sizeof(request), .items = &item};
    request.n_inputs = 1, request.batch = 1;
    sluice_mip_answer answer = {.size = sizeof(answer)};
    if (item.n_bytes == 0) {
        return 0;
    }
    if (sluice_client_mip_infer(client, &request, &answer, &error) != SLUICE_CLIENT_OK) {
        fprintf(stderr, "mip_image: %s: %s\n", path, error.text);
        return 0;
    }
    printf("%s: %.*s\n", path, (int)answer.items[0].n_bytes, (const char *)answer.items[0].data);
    return 1;
}

int main(int argc, char **argv) {
    sluice_client_options options = {.size = sizeof(options), .url = argc > 1 ? argv[1] : ""};
    sluice_client *client;
    sluice_client_error error;
    if (sluice_client_open(&options, &client, &error) != SLUICE_CLIENT_OK) {
        fprintf(stderr, "mip_image: %s\n", error.text);
        return 1;
    }
    int ok = 1;
    for (int i = 2; i < argc; i++) {
        ok = ask(client, argv[i]) && ok;
    }
    sluice_client_close(client);
    return !ok;
}
