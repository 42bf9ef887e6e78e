/* Writing the ready file. */
#include "cli/ready_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"

static void print_address(FILE *file, const struct address *address) {
    char text[ADDRESS_TEXT_BYTES];
    address_print(address, text);
    bool local = str_starts(str_of(text), STR("unix:"));
    fprintf(file, "%s%s\n", local ? "http+" : "http://", text);
}

enum status ready_file_write(const char *path, const struct address *addresses, size_t n,
                             struct error *err) {
    size_t len = strlen(path) + sizeof ".XXXXXX";
    char *beside = malloc(len);
    if (!beside) {
        return error_set(err, ST_NO_MEMORY, "no memory to write %s", path);
    }
    snprintf(beside, len, "%s.XXXXXX", path);
    int fd = mkstemp(beside);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    bool written = file != NULL;
    for (size_t i = 0; file && i < n; i++) {
        print_address(file, &addresses[i]);
    }
    if (file) {
        written = fclose(file) == 0 && rename(beside, path) == 0;
    }
    int reason = errno;
    if (!written && fd >= 0) {
        unlink(beside);
    }
    free(beside);
    return written ? ST_OK : error_set(err, ST_IO, "writing %s: %s", path, strerror(reason));
}
