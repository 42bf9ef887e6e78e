/* Reads memory.pressure, memory.current and memory.stat of control groups. */
#include "core/os/memory_pressure.h"

#include <malloc.h>
#include <stddef.h>
#include <string.h>

#include "core/base/num.h"
#include "core/os/cgroup.h"

enum { STALLED_SHARE = 10, NS_PER_US = 1000 };

struct reading {
    bool has_stalls, is_full;
    uint64_t stalled_us;
};

/* ---- files ----------------------------------------------------------------------------------- */

static bool read_number(const char *folder, const char *name, uint64_t *out) {
    char text[CGROUP_FILE_BYTES];
    struct str line = cgroup_read_line(folder, name, text);
    return line.ptr && num_parse_u64(line, out); /* "max" is not a number */
}

/* The first line: some avg10=0.00 avg60=0.00 avg300=0.00 total=MICROSECONDS */
static void read_stalls(struct reading *reading, const char *folder, const char *name) {
    static const struct str TOTAL = {"total=", 6};
    char text[CGROUP_FILE_BYTES];
    struct str line = cgroup_read_line(folder, name, text);
    while (line.ptr && !reading->has_stalls) {
        struct str word = str_cut(&line, ' ');
        reading->has_stalls = str_starts_with(word, TOTAL) &&
                              num_parse_u64(str_make(word.ptr + TOTAL.len, word.len - TOTAL.len),
                                            &reading->stalled_us);
    }
}

/* Returns: the inactive_file of memory.stat; 0: unknown. */
static uint64_t read_droppable(const char *folder) {
    char text[CGROUP_FILE_BYTES];
    struct str rest = cgroup_read_file(folder, "memory.stat", text);
    uint64_t n_bytes = 0;
    while (rest.ptr) {
        struct str value = str_cut(&rest, '\n'), name = str_cut(&value, ' ');
        if (str_is(name, "inactive_file")) {
            return num_parse_u64(value, &n_bytes) ? n_bytes : 0;
        }
    }
    return 0;
}

static bool is_near(uint64_t used, const char *folder, const char *limit_name) {
    uint64_t limit;
    return read_number(folder, limit_name, &limit) && used >= limit - limit / 16;
}

static bool group_is_full(const char *folder) {
    uint64_t current;
    if (!read_number(folder, "memory.current", &current)) {
        return false;
    }
    uint64_t droppable = read_droppable(folder);
    uint64_t used = current > droppable ? current - droppable : 0;
    return is_near(used, folder, "memory.max") || is_near(used, folder, "memory.high");
}

/* From the process's own group up to the root: its own stalls are read first. */
static void visit_group(void *user, enum cgroup_version version, const char *folder) {
    struct reading *reading = user;
    if (version == CGROUP_V2) {
        read_stalls(reading, folder, "memory.pressure");
        reading->is_full = reading->is_full || group_is_full(folder);
    }
}

/* ---- pressure -------------------------------------------------------------------------------- */

bool memory_pressure_check(struct memory_pressure *self, const struct memory_pressure_files *files,
                           uint64_t now_ns) {
    struct reading reading = {0};
    cgroup_walk(files->proc_cgroup, files->mount, "memory", visit_group, &reading);
    read_stalls(&reading, files->machine, "memory");
    bool is_stalled = self->has_stalls && reading.has_stalls &&
                      reading.stalled_us > self->stalled_us &&
                      (reading.stalled_us - self->stalled_us) * STALLED_SHARE * NS_PER_US >=
                          now_ns - self->checked_ns;
    *self = (struct memory_pressure){
        .has_stalls = reading.has_stalls, .stalled_us = reading.stalled_us, .checked_ns = now_ns};
    return is_stalled || reading.is_full;
}

/* ---- the heap -------------------------------------------------------------------------------- */

/* jemalloc's, where the program is linked with it. */
extern int mallctl(const char *name, void *old, size_t *old_bytes, void *new, size_t new_bytes)
    __attribute__((weak));

void heap_purge(void) {
    if (mallctl) {
        mallctl("arena.4096.purge", NULL, NULL, NULL, 0); /* MALLCTL_ARENAS_ALL */
    } else {
        malloc_trim(0);
    }
}
