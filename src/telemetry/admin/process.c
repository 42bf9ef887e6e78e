/* Metric families of the process and its machine. Names and help texts are in
 * core/base/metric/metric.def. */
#include "telemetry/admin/process.h"

#include <time.h>

#include "core/os/fd_limit.h"

enum { NS_PER_MS = 1000000 };

void admin_process_init(struct admin_process *process, const char *version) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t started_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / NS_PER_MS;
    *process = (struct admin_process){
        .version = version,
        .started_seconds = (double)started_ms / 1e3,
    };
    admin_machine_init(&process->machine);
}

void admin_process_fini(struct admin_process *process) {
    admin_machine_fini(&process->machine);
}

static void print_u64(struct metric_text *text, enum metric_family family, uint64_t value) {
    metric_family_begin(text, family);
    metric_text_u64(text, STR(""), value);
}

static void print_f64(struct metric_text *text, enum metric_family family, double value) {
    metric_family_begin(text, family);
    metric_text_f64(text, STR(""), value);
}

/* By enum net_body_owner. */
static const char *const PROTOCOLS[] = {
    [NET_BODY_HTTP] = "http", [NET_BODY_GRPC] = "grpc", [NET_BODY_MIP] = "mip"};
enum { N_PROTOCOLS = sizeof(PROTOCOLS) / sizeof(PROTOCOLS[0]) };

static void print_kind(struct metric_text *text, const char *kind, const char *protocol,
                       uint64_t n_bytes) {
    struct buf labels;
    buf_init(&labels, text->out->arena, 64);
    metric_label_add(&labels, "kind", str_of(kind));
    if (protocol) {
        metric_label_add(&labels, "protocol", str_of(protocol));
    }
    metric_text_u64(text, buf_str(&labels), n_bytes);
}

static void print_use(struct metric_text *text, const char *protocol,
                      const struct net_budget_use *use) {
    print_kind(text, "responses", protocol, use->n_response_bytes);
    print_kind(text, "open_calls", protocol, use->n_open_call_bytes);
    print_kind(text, "connections", protocol, use->n_conn_bytes);
    print_kind(text, "tls", protocol, use->n_tls_bytes);
    print_kind(text, "buffers", protocol, use->n_buffer_bytes);
    print_kind(text, "sockets", protocol, use->n_socket_bytes);
}

static void print_waiting(struct metric_text *text, const char *protocol, const char *limit,
                          uint64_t n) {
    struct buf labels;
    buf_init(&labels, text->out->arena, 64);
    metric_label_add(&labels, "protocol", str_of(protocol));
    metric_label_add(&labels, "limit", str_of(limit));
    metric_text_u64(text, buf_str(&labels), n);
}

static void print_client_memory(struct net_budget *budget, struct metric_text *text) {
    struct net_budget_use uses[N_PROTOCOLS] = {0}, of_calls = {0};
    bool found[N_PROTOCOLS];
    print_u64(text, METRIC_FAMILY_CLIENT_MEMORY_LIMIT, budget->memory);
    metric_family_begin(text, METRIC_FAMILY_CLIENT_MEMORY);
    for (size_t i = 0; i < N_PROTOCOLS; i++) {
        found[i] = net_budget_add_use(budget, PROTOCOLS[i], &uses[i]);
        if (found[i]) {
            print_use(text, PROTOCOLS[i], &uses[i]);
        }
    }
    for (size_t i = 0; i < NET_BODY_OWNERS; i++) {
        uint64_t n_bytes = atomic_load_explicit(&budget->n_owner_bytes[i], memory_order_relaxed);
        if (i == NET_BODY_SHARED_MEMORY) {
            print_kind(text, "shared_memory", NULL, n_bytes);
        } else if (found[i]) {
            print_kind(text, "bodies", PROTOCOLS[i], n_bytes);
        }
    }
    for (size_t i = 0; i < NET_BODY_MIP; i++) {
        if (found[i]) {
            print_kind(text, "pages", PROTOCOLS[i],
                       atomic_load_explicit(&budget->n_owner_page_bytes[i], memory_order_relaxed));
        }
    }
    if (found[NET_BODY_MIP]) {
        print_kind(text, "pictures", "mip",
                   atomic_load_explicit(&budget->n_picture_bytes, memory_order_relaxed));
    }
    if (net_budget_add_use(budget, "calls", &of_calls)) {
        print_kind(text, "calls", NULL, of_calls.n_response_bytes);
    }
    print_kind(text, "requests", NULL,
               atomic_load_explicit(&budget->n_arena_bytes, memory_order_relaxed));
    metric_family_begin(text, METRIC_FAMILY_WAITING_FOR_MEMORY);
    for (size_t i = 0; i < N_PROTOCOLS; i++) {
        if (found[i]) {
            print_waiting(text, PROTOCOLS[i], "client_memory", uses[i].n_waiting_for_budget);
            print_waiting(text, PROTOCOLS[i], "max_unsent_size", uses[i].n_waiting_for_account);
        }
    }
}

/* Under the names of Prometheus's client libraries, which dashboards of other servers query. */
static void print_process(const struct admin_process *process,
                          const struct admin_machine_stats *state, struct metric_text *text) {
    print_f64(text, METRIC_FAMILY_PROCESS_START_TIME, process->started_seconds);
    print_f64(text, METRIC_FAMILY_PROCESS_CPU_SECONDS, state->cpu_seconds);
    print_u64(text, METRIC_FAMILY_PROCESS_RESIDENT, state->resident_bytes);
    print_u64(text, METRIC_FAMILY_PROCESS_VIRTUAL, state->virtual_bytes);
    print_u64(text, METRIC_FAMILY_PROCESS_OPEN_FILES, fd_count_open());
    print_u64(text, METRIC_FAMILY_PROCESS_MAX_FILES, fd_limit());
}

void admin_process_print(struct admin_process *process, struct metric_text *text) {
    struct admin_machine_stats state;
    struct buf labels;
    buf_init(&labels, text->out->arena, 64);
    metric_label_add(&labels, "version", str_of(process->version));
    metric_family_begin(text, METRIC_FAMILY_BUILD);
    metric_text_u64(text, buf_str(&labels), 1);
    admin_machine_read(&process->machine, &state);
    print_f64(text, METRIC_FAMILY_START_TIME, process->started_seconds);
    print_f64(text, METRIC_FAMILY_CPU_SECONDS, state.cpu_seconds);
    print_u64(text, METRIC_FAMILY_RESIDENT, state.resident_bytes);
    if (!process->hides_machine) {
        print_f64(text, METRIC_FAMILY_CPU_UTILIZATION, state.utilization);
        print_u64(text, METRIC_FAMILY_CPU_MEMORY_TOTAL, state.memory_total_bytes);
        print_u64(text, METRIC_FAMILY_CPU_MEMORY_USED, state.memory_used_bytes);
    }
    print_client_memory(process->budget, text);
    print_process(process, &state, text);
}
