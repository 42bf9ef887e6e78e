/* Shared libraries that are whole, cut off, or something else. */
#include "core/os/shared_library.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <link.h>

/* The library that this test has loaded, by a symbol of the C library. */
static int note_library(struct dl_phdr_info *info, size_t n_bytes, void *user) {
    (void)n_bytes;
    if (strstr(info->dlpi_name, "libcmocka")) {
        snprintf(user, 256, "%s", info->dlpi_name);
    }
    return 0;
}

struct library {
    char path[64];
    char *bytes;
    size_t n_bytes;
};

static void library_write(const struct library *library, size_t n_bytes) {
    FILE *file = fopen(library->path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(library->bytes, 1, n_bytes, file), n_bytes);
    assert_int_equal(fclose(file), 0);
}

static int setup(void **state) {
    static struct library library;
    char found[256] = "";
    dl_iterate_phdr(note_library, found);
    FILE *file = fopen(found, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    library.n_bytes = (size_t)ftell(file);
    library.bytes = malloc(library.n_bytes);
    assert_non_null(library.bytes);
    rewind(file);
    assert_int_equal(fread(library.bytes, 1, library.n_bytes, file), library.n_bytes);
    fclose(file);
    snprintf(library.path, sizeof(library.path), "/tmp/sluice-library-XXXXXX");
    int fd = mkstemp(library.path);
    assert_true(fd >= 0);
    close(fd);
    *state = &library;
    return 0;
}

static int teardown(void **state) {
    struct library *library = *state;
    unlink(library->path);
    free(library->bytes);
    return 0;
}

static void library_that_is_whole_passes(void **state) {
    struct library *library = *state;
    struct error err;
    library_write(library, library->n_bytes);
    assert_int_equal(shared_library_check(library->path, &err), ST_OK);
}

/* At each length: what dlopen would map is missing, or the file is too short to be a library. */
static void library_that_is_cut_off_is_refused(void **state) {
    struct library *library = *state;
    size_t n_refused = 0;
    struct error err;
    for (size_t n = 0; n < library->n_bytes / 2; n += 509) {
        library_write(library, n);
        enum status st = shared_library_check(library->path, &err);
        if (n >= sizeof(ElfW(Ehdr))) {
            assert_int_equal(st, ST_BAD_MODEL);
            assert_non_null(strstr(err.text, " is cut off: it has "));
            n_refused++;
        } else {
            assert_int_equal(st, ST_OK);
        }
    }
    assert_true(n_refused > 10);
}

static void library_with_segments_beyond_all_sizes_is_refused(void **state) {
    struct library *library = *state;
    ElfW(Ehdr) head;
    ElfW(Phdr) segment;
    struct error err;
    char *copy = malloc(library->n_bytes);
    assert_non_null(copy);
    memcpy(copy, library->bytes, library->n_bytes);
    memcpy(&head, copy, sizeof(head));
    for (size_t i = 0; i < head.e_phnum; i++) {
        memcpy(&segment, copy + head.e_phoff + i * sizeof(segment), sizeof(segment));
        segment.p_filesz = segment.p_type == PT_LOAD ? UINT64_MAX : segment.p_filesz;
        memcpy(copy + head.e_phoff + i * sizeof(segment), &segment, sizeof(segment));
    }
    const struct library changed = {.bytes = copy, .n_bytes = library->n_bytes};
    struct library placed = changed;
    memcpy(placed.path, library->path, sizeof(placed.path));
    library_write(&placed, placed.n_bytes);
    assert_int_equal(shared_library_check(placed.path, &err), ST_BAD_MODEL);
    head.e_phoff = UINT64_MAX / 2; /* where the file has none */
    memcpy(copy, &head, sizeof(head));
    library_write(&placed, placed.n_bytes);
    assert_int_equal(shared_library_check(placed.path, &err), ST_BAD_MODEL);
    free(copy);
}

static void file_that_is_no_library_is_left_to_the_loader(void **state) {
    struct library *library = *state;
    const struct library text = {.bytes = "not a library, and long enough for the head of an ELF "
                                          "file, which has sixty-four bytes",
                                 .n_bytes = 80};
    struct library placed = text;
    struct error err;
    memcpy(placed.path, library->path, sizeof(placed.path));
    library_write(&placed, placed.n_bytes);
    assert_int_equal(shared_library_check(placed.path, &err), ST_OK);
    assert_int_equal(shared_library_check("/tmp", &err), ST_OK);
    assert_int_equal(shared_library_check("/nothing/there", &err), ST_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(library_that_is_whole_passes),
        cmocka_unit_test(library_that_is_cut_off_is_refused),
        cmocka_unit_test(library_with_segments_beyond_all_sizes_is_refused),
        cmocka_unit_test(file_that_is_no_library_is_left_to_the_loader),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
