/* The segments of an ELF file must lie within it. */
#include "core/os/shared_library.h"

#include <fcntl.h>
#include <inttypes.h>
#include <link.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool read_at(int fd, void *out, size_t n_bytes, uint64_t offset) {
    return offset <= INT64_MAX && pread(fd, out, n_bytes, (off_t)offset) == (ssize_t)n_bytes;
}

/* Returns: where the segment ends in the file, saturated. */
static uint64_t segment_end(const ElfW(Phdr) * segment) {
    uint64_t end;
    if (segment->p_type != PT_LOAD) {
        return 0;
    }
    return __builtin_add_overflow(segment->p_offset, segment->p_filesz, &end) ? UINT64_MAX : end;
}

/* Returns: the size that the file must have at least; 0: it is no library of this machine. */
static uint64_t find_needed_size(int fd) {
    ElfW(Ehdr) head;
    ElfW(Phdr) segment;
    uint64_t needed = 0;
    if (!read_at(fd, &head, sizeof(head), 0) || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
        head.e_phentsize != sizeof(segment)) {
        return 0;
    }
    for (size_t i = 0; i < head.e_phnum; i++) {
        uint64_t offset = head.e_phoff + i * sizeof(segment);
        uint64_t end = read_at(fd, &segment, sizeof(segment), offset) ? segment_end(&segment)
                                                                      : offset + sizeof(segment);
        needed = end > needed ? end : needed;
    }
    return needed;
}

enum status shared_library_check(const char *path, struct error *err) {
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool is_file = fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
    uint64_t needed = is_file ? find_needed_size(fd) : 0;
    if (fd >= 0) {
        close(fd);
    }
    return is_file && needed > (uint64_t)info.st_size
               ? error_set(err, ST_BAD_MODEL,
                           "%s is cut off: it has %" PRIu64 " bytes, its segments need %" PRIu64,
                           path, (uint64_t)info.st_size, needed)
               : ST_OK;
}
