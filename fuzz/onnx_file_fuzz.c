/* ONNX files: the check of the whole, external data, ZipMap, and whether times follow from shapes.
 * What is written anew is well-formed and refers to no file of the model's choice. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/onnx_file.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WEIGHTS_BYTES = 64 };

/* A directory of the process, with the model's file and a file of weights. */
static struct { char directory[64], model[80], weights[80]; } place;

static void check(bool holds) {
    if (!holds) {
        __builtin_trap();
    }
}

static void file_write(const char *path, const void *data, size_t n) {
    FILE *file = fopen(path, "wb");
    check(file != NULL);
    check(fwrite(data, 1, n, file) == n);
    check(fclose(file) == 0);
}

static void remove_place(void) {
    unlink(place.model);
    unlink(place.weights);
    rmdir(place.directory);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    const char *folder = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    char weights[WEIGHTS_BYTES] = "weights";
    (void)argc, (void)argv;
    snprintf(place.directory, sizeof(place.directory), "%s/onnx-fuzz-XXXXXX", folder);
    check(mkdtemp(place.directory) != NULL);
    snprintf(place.model, sizeof(place.model), "%s/m", place.directory);
    snprintf(place.weights, sizeof(place.weights), "%s/w", place.directory);
    file_write(place.weights, weights, sizeof(weights));
    atexit(remove_place);
    return 0;
}

static struct bytes bytes_of(const struct file *file) {
    return (struct bytes){file->data, file->n_bytes};
}

/* What was rewritten: reading it again finds nothing to rewrite. */
static void check_model(const struct onnx_file *read) {
    char why[160], text[sizeof(read->zipmap)];
    sluice_error error;
    check(onnx_check(bytes_of(&read->model), why, sizeof(why)) == 1);
    struct file again = {malloc(read->model.n_bytes + 1), read->model.n_bytes};
    check(again.data != NULL);
    if (again.n_bytes > 0) {
        memcpy(again.data, read->model.data, again.n_bytes);
    }
    check(onnx_zipmap_replace(&again, text, sizeof(text), &error) == SLUICE_OK);
    check(text[0] == '\0' || read->zipmap[0] == '\0');
    free(again.data);
    int follows = onnx_graph_follows_shapes(bytes_of(&read->model));
    check(follows == 0 || follows == 1);
}

/* Names are "external-N", which leave no directory. */
static void check_externals(const struct onnx_file *read) {
    for (size_t i = 0; i < read->n_externals; i++) {
        check(strncmp(read->externals[i].name, "external-", 9) == 0);
        check(!strstr(read->externals[i].location, ".."));
        check(read->externals[i].location[0] != '/');
    }
}

/* Returns: whether the file was read. */
static bool read_model(enum onnx_external_mode mode) {
    struct onnx_file file;
    sluice_error error = {0};
    sluice_status status = onnx_file_read(&file, place.model, mode, &error);
    if (status == SLUICE_OK) {
        check_model(&file);
        check_externals(&file);
    } else {
        check(memchr(error.text, '\0', sizeof(error.text)) != NULL && error.text[0] != '\0');
    }
    onnx_file_fini(&file);
    return status == SLUICE_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    (void)onnx_graph_follows_shapes((struct bytes){(const char *)data, size});
    file_write(place.model, data, size);
    bool read = read_model(ONNX_EXTERNAL_EMBED);
    check(read_model(ONNX_EXTERNAL_FILES) == read);
    return 0;
}
