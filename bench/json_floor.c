/* The floor for JSON tensors: yyjson parses a text and prints it again, nothing else.
 *
 *     json_floor FILE SECONDS */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <yyjson.h>

static double now(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static char *read_all(const char *path, size_t *n) {
    FILE *file = fopen(path, "rb");
    if (!file) {
        return NULL;
    }
    fseek(file, 0, SEEK_END);
    *n = (size_t)ftell(file);
    rewind(file);
    char *text = malloc(*n);
    if (fread(text, 1, *n, file) != *n) {
        *n = 0;
    }
    fclose(file);
    return text;
}

int main(int argc, char **argv) {
    size_t n_text = 0;
    char *text = argc == 3 ? read_all(argv[1], &n_text) : NULL;
    if (!text || !n_text) {
        fprintf(stderr, "usage: json_floor FILE SECONDS\n");
        return 2;
    }
    unsigned long n = 0;
    double start = now();
    double end = start + atof(argv[2]);
    while (now() < end) {
        yyjson_doc *doc = yyjson_read(text, n_text, 0);
        size_t n_out = 0;
        char *out = yyjson_write(doc, 0, &n_out);
        if (!out) {
            return 1;
        }
        free(out);
        yyjson_doc_free(doc);
        n++;
    }
    printf("{\"rate\":%.1f}\n", (double)n / (now() - start));
    free(text);
    return 0;
}
