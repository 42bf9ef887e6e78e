/* Binds threads to CPUs (sched_setaffinity) and their memory to a NUMA node (set_mempolicy), which
 * is called directly: libnuma is needed for nothing else. */
#include "core/os/host_policy.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/num.h"

enum { BITS_PER_WORD = 8 * sizeof(unsigned long), CPU_LIST_BYTES = 128 };

/* ---- reading --------------------------------------------------------------------------------- */

/* "LOW-HIGH" or one number. */
static bool parse_range(struct str text, uint64_t *low, uint64_t *high) {
    struct str rest = text;
    struct str first = str_cut(&rest, '-');
    if (!num_parse_u64(first, low)) {
        return false;
    }
    *high = *low;
    return !rest.ptr || num_parse_u64(rest, high);
}

static enum status parse_cpus(struct str text, cpu_set_t *out, struct error *err) {
    struct str rest = text;
    CPU_ZERO(out);
    while (rest.ptr) {
        struct str range = str_cut(&rest, ',');
        uint64_t low, high;
        if (!parse_range(range, &low, &high) || low > high) {
            return error_set(err, ST_BAD_CONFIG,
                             "cpu-cores: expected numbers and ranges, as 0-3,8, got \"%.*s\"",
                             STR_ARG(text));
        }
        if (high >= CPU_SETSIZE) {
            return error_set(err, ST_BAD_CONFIG, "cpu-cores: %.*s is beyond CPU %d", STR_ARG(range),
                             CPU_SETSIZE - 1);
        }
        for (; low <= high; low++) {
            CPU_SET(low, out);
        }
    }
    return ST_OK;
}

static enum status parse_node(struct str text, unsigned *out, struct error *err) {
    uint64_t node;
    if (!num_parse_u64(text, &node) || node >= NUMA_NODES_MAX) {
        return error_set(err, ST_BAD_CONFIG, "numa-node: expected a number up to %d, got \"%.*s\"",
                         NUMA_NODES_MAX - 1, STR_ARG(text));
    }
    *out = (unsigned)node;
    return ST_OK;
}

static enum status parse_setting(struct host_policy *policy, struct str setting, struct str value,
                                 struct error *err) {
    enum status st;
    if (str_is(setting, "cpu-cores")) {
        st = parse_cpus(value, &policy->cpus, err);
        policy->has_cpus = st == ST_OK;
    } else if (str_is(setting, "numa-node")) {
        st = parse_node(value, &policy->node, err);
        policy->has_node = st == ST_OK;
    } else {
        st = error_set(err, ST_BAD_CONFIG, "expected cpu-cores or numa-node, got \"%.*s\"",
                       STR_ARG(setting));
    }
    return st;
}

enum status host_policies_parse(const char *const *texts, size_t n, struct arena *arena,
                                struct host_policies *out, struct error *err) {
    struct host_policy *items = arena_calloc(arena, n, sizeof(*items));
    *out = (struct host_policies){.items = items};
    if (!items) {
        return error_no_memory(err, "the host policies");
    }
    for (size_t i = 0; i < n; i++) {
        struct str setting = str_of(texts[i]);
        struct str name = str_cut(&setting, ',');
        struct str value = setting;
        setting = str_cut(&value, '=');
        if (name.len == 0 || !setting.ptr || setting.len == 0 || !value.ptr || value.len == 0) {
            return error_set(err, ST_BAD_CONFIG, "expected NAME,SETTING=VALUE, got \"%s\"",
                             texts[i]);
        }
        size_t at = 0;
        while (at < out->n && !str_eq(items[at].name, name)) {
            at++;
        }
        if (at == out->n) {
            items[out->n++].name = name;
        }
        if (parse_setting(&items[at], setting, value, err) != ST_OK) {
            return error_prefix(err, "%.*s", STR_ARG(name));
        }
    }
    return ST_OK;
}

const struct host_policy *host_policies_find(const struct host_policies *policies,
                                             struct str name) {
    for (size_t i = 0; i < policies->n; i++) {
        if (str_eq(policies->items[i].name, name)) {
            return &policies->items[i];
        }
    }
    return NULL;
}

void host_policy_join(struct host_policy *policy, const struct host_policy *other) {
    policy->has_cpus = policy->has_cpus && other->has_cpus;
    policy->has_node = policy->has_node && other->has_node && policy->node == other->node;
    if (policy->has_cpus) {
        CPU_OR(&policy->cpus, &policy->cpus, &other->cpus);
    }
}

/* ---- placing --------------------------------------------------------------------------------- */

void thread_placement_read(struct thread_placement *out) {
    *out = (struct thread_placement){0};
    out->has_cpus = sched_getaffinity(0, sizeof(out->cpus), &out->cpus) == 0;
    out->has_memory = syscall(SYS_get_mempolicy, &out->memory_mode, out->memory_nodes,
                              (unsigned long)NUMA_NODES_MAX, NULL, 0UL) == 0;
}

unsigned host_policy_count_cpus(const struct host_policy *policy,
                                const struct thread_placement *placement) {
    cpu_set_t usable = policy->cpus;
    if (placement->has_cpus) {
        CPU_AND(&usable, &usable, &placement->cpus);
    }
    return (unsigned)CPU_COUNT(&usable);
}

/* Prints the set as parse_cpus reads it. Returns: `out`. */
static const char *print_cpus(const cpu_set_t *set, char out[CPU_LIST_BYTES]) {
    enum { LONGEST = 12 /* ",1022-1023" */ };
    size_t len = 0;
    out[0] = '\0';
    for (size_t cpu = 0; cpu < CPU_SETSIZE && len < CPU_LIST_BYTES - LONGEST; cpu++) {
        size_t first = cpu;
        while (cpu < CPU_SETSIZE && CPU_ISSET(cpu, set)) {
            cpu++;
        }
        if (cpu > first) {
            len += (size_t)snprintf(out + len, CPU_LIST_BYTES - len, "%s%zu", len > 0 ? "," : "",
                                    first);
        }
        if (cpu > first + 1) {
            len += (size_t)snprintf(out + len, CPU_LIST_BYTES - len, "-%zu", cpu - 1);
        }
    }
    return out;
}

static enum status bind_cpus(const struct thread_placement *otherwise,
                             const struct host_policy *policy, struct error *err) {
    bool from_policy = policy && policy->has_cpus;
    cpu_set_t set = from_policy ? policy->cpus : otherwise->cpus;
    char asked[CPU_LIST_BYTES], usable[CPU_LIST_BYTES];
    if (from_policy && otherwise->has_cpus) {
        CPU_AND(&set, &set, &otherwise->cpus);
        if (CPU_COUNT(&set) == 0) {
            return error_set(err, ST_BAD_CONFIG,
                             "cpu-cores: this process may use none of the CPUs %s; it may use %s",
                             print_cpus(&policy->cpus, asked),
                             print_cpus(&otherwise->cpus, usable));
        }
    }
    if ((from_policy || otherwise->has_cpus) && sched_setaffinity(0, sizeof(set), &set) != 0) {
        return error_set(err, ST_IO, "cpu-cores: threads can't be bound to the CPUs %s: %s",
                         print_cpus(&set, asked), strerror(errno));
    }
    return ST_OK;
}

static bool has_node(unsigned node) {
    char path[64];
    snprintf(path, sizeof(path), "/sys/devices/system/node/node%u", node);
    return access(path, F_OK) == 0;
}

static long set_memory_policy(int mode, const unsigned long *nodes) {
    /* The kernel reads one bit less than it is told. */
    return syscall(SYS_set_mempolicy, mode, nodes, (unsigned long)NUMA_NODES_MAX + 1);
}

static enum status bind_memory(const struct thread_placement *otherwise,
                               const struct host_policy *policy, struct error *err) {
    if (!policy || !policy->has_node) {
        if (otherwise->has_memory) {
            set_memory_policy(otherwise->memory_mode, otherwise->memory_nodes);
        }
        return ST_OK;
    }
    unsigned long nodes[NUMA_NODES_MAX / BITS_PER_WORD] = {0};
    nodes[policy->node / BITS_PER_WORD] = 1UL << (policy->node % BITS_PER_WORD);
    if (!has_node(policy->node)) {
        return error_set(err, ST_BAD_CONFIG, "numa-node: this machine has no NUMA node %u",
                         policy->node);
    }
    if (set_memory_policy(MPOL_BIND, nodes) != 0) {
        return error_set(err, ST_IO, "numa-node: memory can't be bound to NUMA node %u: %s",
                         policy->node, strerror(errno));
    }
    return ST_OK;
}

enum status thread_placement_apply(const struct thread_placement *otherwise,
                                   const struct host_policy *policy, struct error *err) {
    enum status st = bind_cpus(otherwise, policy, err);
    return st == ST_OK ? bind_memory(otherwise, policy, err) : st;
}

void thread_placement_restore(const struct thread_placement *placement) {
    struct error err;
    if (thread_placement_apply(placement, NULL, &err) != ST_OK) {
        log_event(LOG_WARNING, "a thread keeps the CPUs of a host policy",
                  LOG_CSTR("reason", err.text));
    }
}
