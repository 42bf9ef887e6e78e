/* Reads /proc. */
#include "telemetry/admin/machine.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/base/num.h"
#include "core/event/clock.h"

enum { FILE_BYTES = 4096 };

static const uint64_t INTERVAL_NS = 1000000000;

/* Reads the beginning of a file. Returns: empty when it can't be read. */
static struct str read_file(const char *path, char buffer[FILE_BYTES]) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return STR("");
    }
    ssize_t n = read(fd, buffer, FILE_BYTES);
    close(fd);
    return str_make(buffer, n > 0 ? (size_t)n : 0);
}

/* Parses the next number, after blanks. */
static uint64_t next_number(struct str *text) {
    uint64_t value = 0;
    *text = str_trim(*text);
    if (!num_parse_u64(str_cut(text, ' '), &value)) {
        *text = str_make(NULL, 0);
    }
    return value;
}

/* Returns: the text after `key` on the line that begins with it. */
static struct str find_line(struct str text, struct str key) {
    while (text.ptr) {
        struct str line = str_cut(&text, '\n');
        if (str_starts_with(line, key)) {
            return str_make(line.ptr + key.len, line.len - key.len);
        }
    }
    return text;
}

uint64_t admin_machine_parse_number(struct str text, struct str key) {
    struct str line = find_line(text, key);
    return next_number(&line);
}

/* cpu  user nice system idle iowait irq softirq steal; a guest's time is in user already. */
void admin_machine_parse_cpu_ticks(struct str text, uint64_t *busy, uint64_t *idle) {
    struct str line = find_line(text, STR("cpu "));
    *busy = *idle = 0;
    for (int i = 0; i < 8; i++) {
        *(i == 3 || i == 4 ? idle : busy) += next_number(&line);
    }
}

static void sample_cpu_ticks(struct admin_machine *machine) {
    char buffer[FILE_BYTES];
    uint64_t busy, idle;
    admin_machine_parse_cpu_ticks(read_file("/proc/stat", buffer), &busy, &idle);
    uint64_t busy_delta = busy - machine->busy, idle_delta = idle - machine->idle;
    if (busy >= machine->busy && idle >= machine->idle && busy_delta + idle_delta > 0) {
        machine->utilization = (double)busy_delta / (double)(busy_delta + idle_delta);
    }
    machine->busy = busy;
    machine->idle = idle;
    machine->sampled_ns = clock_now_ns();
}

void admin_machine_init(struct admin_machine *machine) {
    *machine = (struct admin_machine){.busy = 0};
    lock_init(&machine->lock);
    sample_cpu_ticks(machine);
    machine->utilization = 0; /* it covered the time since boot */
}

void admin_machine_fini(struct admin_machine *machine) {
    lock_fini(&machine->lock);
}

void admin_machine_read(struct admin_machine *machine, struct admin_machine_stats *out) {
    char buffer[FILE_BYTES];
    struct rusage usage = {.ru_utime = {0, 0}};
    lock_acquire(&machine->lock);
    if (clock_now_ns() - machine->sampled_ns >= INTERVAL_NS) {
        sample_cpu_ticks(machine);
    }
    *out = (struct admin_machine_stats){.utilization = machine->utilization};
    lock_release(&machine->lock);
    struct str text = read_file("/proc/meminfo", buffer);
    uint64_t available = admin_machine_parse_number(text, STR("MemAvailable:")) * 1024;
    out->memory_total_bytes = admin_machine_parse_number(text, STR("MemTotal:")) * 1024;
    out->memory_used_bytes =
        out->memory_total_bytes > available ? out->memory_total_bytes - available : 0;
    text = read_file("/proc/self/statm", buffer);
    out->virtual_bytes = next_number(&text) * (uint64_t)sysconf(_SC_PAGESIZE);
    out->resident_bytes = next_number(&text) * (uint64_t)sysconf(_SC_PAGESIZE);
    getrusage(RUSAGE_SELF, &usage);
    out->cpu_seconds = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}
