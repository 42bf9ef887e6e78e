/* Runs each profile on each scenario and prints mean and p99 of the waiting time, in simulated
 * time.
 *
 *     simulate [--json] [SERVERS [SECONDS [SEED]]]
 *     simulate faults [--json] [SERVERS [SEED]]
 *     simulate replay [--json] [SEEDS [GUIDE]]
 *
 * The second prints what share of the good requests is answered while servers, clients or the load
 * misbehave, for each judge of the servers' health; without SERVERS with 3, 10 and 100. The third
 * replays workloads under the configurations of llm-d's guides, by the picker and by upstream's
 * algorithm, in the repository's root; without SEEDS with 5.
 *
 * Without SERVERS: 8 and 100. The same arguments print the same table, to the last digit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/num.h"
#include "faults.h"
#include "replay.h"
#include "run.h"

static struct sim_result result; /* too large for a stack */

static void print_head(uint32_t n_servers) {
    printf("%-24s", "");
    for (size_t i = 0; i < SIM_N_SCENARIOS; i++) {
        printf("  %16s", SIM_SCENARIOS[i].name);
    }
    printf("\n%4u servers%12s", n_servers, "");
    for (size_t i = 0; i < SIM_N_SCENARIOS; i++) {
        printf("  %7s  %7s", "mean ms", "p99");
    }
    printf("\n");
}

static void print_table(struct sim_setting setting) {
    print_head(setting.n_servers);
    for (size_t i = 0; i < SIM_N_PROFILES; i++) {
        setting.profile = &SIM_PROFILES[i];
        printf("%-24s", setting.profile->title);
        for (size_t k = 0; k < SIM_N_SCENARIOS; k++) {
            setting.scenario = &SIM_SCENARIOS[k];
            sim_run(&setting, &result);
            printf("  %7.0f  %7.0f", result.mean_s * 1e3, result.p99_s * 1e3);
            fflush(stdout);
        }
        printf("\n");
    }
    printf("\n");
}

/* One line per run. */
static void print_json(struct sim_setting setting) {
    for (size_t i = 0; i < SIM_N_PROFILES; i++) {
        for (size_t k = 0; k < SIM_N_SCENARIOS; k++) {
            setting.profile = &SIM_PROFILES[i];
            setting.scenario = &SIM_SCENARIOS[k];
            sim_run(&setting, &result);
            printf("{\"servers\":%u,\"seconds\":%u,\"profile\":\"%s\",\"scenario\":\"%s\","
                   "\"n\":%u,\"mean_s\":%.9f,\"p99_s\":%.9f,\"hits\":%.4f,\"of_first\":%.6f}\n",
                   setting.n_servers, setting.seconds, setting.profile->title,
                   setting.scenario->title, result.n, result.mean_s, result.p99_s, result.hits,
                   result.n_of[0] / (result.n / 0.9));
            fflush(stdout);
        }
    }
}

/* The i-th argument, a number from 1. */
static uint32_t parse_argument(int argc, char **argv, int i, uint64_t most, uint32_t preset) {
    uint64_t value = preset;
    if (i < argc && (!num_parse_u64(str_of(argv[i]), &value) || value < 1 || value > most)) {
        fprintf(stderr,
                "usage: simulate [--json] [SERVERS [SECONDS [SEED]]]\n"
                "       simulate faults [--json] [SERVERS [SEED]]\n"
                "       simulate replay [--json] [SEEDS [GUIDE]]\n"
                "at most %d servers and 3600 seconds\n",
                SIM_MOST_SERVERS);
        exit(2);
    }
    return (uint32_t)value;
}

static const char *const JUDGES[SIM_N_JUDGES] = {"picker", "oracle", "llm-d's", "Envoy's"};

static void print_faults_json(uint32_t n_servers, uint64_t seed) {
    for (size_t i = 0; i < SIM_N_FAULT_SCENARIOS; i++) {
        for (unsigned k = 0; k < SIM_N_JUDGES; k++) {
            struct sim_fault_result done;
            sim_faults_run(&SIM_FAULT_SCENARIOS[i], (enum sim_judge)k, n_servers, seed, &done);
            printf("{\"servers\":%u,\"scenario\":\"%s\",\"judge\":\"%s\",\"good\":%.9f,"
                   "\"p99_s\":%.9f,\"back_s\":%.9f}\n",
                   n_servers, SIM_FAULT_SCENARIOS[i].title, JUDGES[k], (double)done.n_good / done.n,
                   done.p99_s, done.back_s);
        }
    }
}

static void print_faults(uint32_t n_servers, uint64_t seed) {
    printf("%4u servers%16s", n_servers, "");
    for (size_t k = 0; k < SIM_N_JUDGES; k++) {
        printf("  %22s", JUDGES[k]);
    }
    printf("\n%28s", "");
    for (size_t k = 0; k < SIM_N_JUDGES; k++) {
        printf("  %7s %7s %6s", "good %", "p99 ms", "back s");
    }
    printf("\n");
    for (size_t i = 0; i < SIM_N_FAULT_SCENARIOS; i++) {
        printf("%-28s", SIM_FAULT_SCENARIOS[i].title);
        for (unsigned k = 0; k < SIM_N_JUDGES; k++) {
            struct sim_fault_result done;
            sim_faults_run(&SIM_FAULT_SCENARIOS[i], (enum sim_judge)k, n_servers, seed, &done);
            printf("  %7.2f %7.0f %6.2f", 100.0 * done.n_good / done.n, done.p99_s * 1e3,
                   done.back_s);
        }
        printf("\n");
    }
    printf("\n");
}

static int run_faults(int argc, char **argv) {
    static const uint32_t sizes[] = {3, 10, 100};
    bool json = argc > 2 && strcmp(argv[2], "--json") == 0;
    int first = json ? 3 : 2;
    size_t n = argc > first ? 1 : sizeof(sizes) / sizeof(*sizes);
    for (size_t i = 0; i < n; i++) {
        uint32_t n_servers = parse_argument(argc, argv, first, SIM_MOST_FAULT_SERVERS, sizes[i]);
        uint32_t seed = parse_argument(argc, argv, first + 1, UINT32_MAX, 1);
        (json ? print_faults_json : print_faults)(n_servers, seed);
    }
    return 0;
}

static void print_replay(const struct sim_replay_setting *setting, bool json) {
    static const char *const choosers[N_CHOOSERS] = {"picker", "llm-d's"};
    struct sim_replay_result done;
    sim_replay_run(setting, &done);
    printf(json ? "{\"guide\":\"%s\",\"workload\":\"%s\",\"chooser\":\"%s\",\"seed\":%u,"
                  "\"n\":%u,\"refused\":%u,\"hits\":%.6f,\"mean_s\":%.6f,\"p50_s\":%.6f,"
                  "\"p90_s\":%.6f,\"p99_s\":%.6f,\"ends_s\":%.3f,\"spread\":%.4f}\n"
                : "%-34s %-14s %-8s %4u  %6u %6u  %6.3f  %8.3f %8.3f %8.3f %8.3f  %7.1f %6.2f\n",
           setting->guide, sim_workload_name(setting->workload), choosers[setting->chooser],
           (unsigned)setting->seed, done.n, done.n_refused, done.hits, done.mean_s, done.p50_s,
           done.p90_s, done.p99_s, done.ends_s, done.spread);
    fflush(stdout);
}

static int run_replay(int argc, char **argv) {
    bool json = argc > 2 && strcmp(argv[2], "--json") == 0;
    int first = json ? 3 : 2;
    uint32_t n_seeds = parse_argument(argc, argv, first, 1000, 5);
    const char *only = argc > first + 1 ? argv[first + 1] : NULL;
    struct sim_replay_setting setting = {.size = 1};
    if (!json) {
        printf("%-34s %-14s %-8s %4s  %6s %6s  %6s  %8s %8s %8s %8s  %7s %6s\n", "", "", "", "seed",
               "n", "none", "hits", "mean s", "p50", "p90", "p99", "ends s", "spread");
    }
    for (size_t i = 0; SIM_GUIDES[i]; i++) {
        setting.guide = SIM_GUIDES[i];
        for (unsigned k = 0; k < N_WORKLOAD_KINDS * n_seeds * N_CHOOSERS; k++) {
            setting.workload = (enum sim_workload_kind)(k / N_CHOOSERS / n_seeds);
            setting.seed = 1 + k / N_CHOOSERS % n_seeds;
            setting.chooser = (enum sim_chooser)(k % N_CHOOSERS);
            if (!only || strcmp(only, setting.guide) == 0) {
                print_replay(&setting, json);
            }
        }
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "faults") == 0) {
        return run_faults(argc, argv);
    }
    if (argc > 1 && strcmp(argv[1], "replay") == 0) {
        return run_replay(argc, argv);
    }
    bool json = argc > 1 && strcmp(argv[1], "--json") == 0;
    int first = json ? 2 : 1;
    static const uint32_t sizes[] = {8, 100};
    size_t n = argc > first ? 1 : sizeof(sizes) / sizeof(*sizes);
    for (size_t i = 0; i < n; i++) {
        struct sim_setting setting = {
            .n_servers = parse_argument(argc, argv, first, SIM_MOST_SERVERS, sizes[i]),
            .seconds = parse_argument(argc, argv, first + 1, 3600, 120),
            .seed = parse_argument(argc, argv, first + 2, UINT32_MAX, 1)};
        (json ? print_json : print_table)(setting);
    }
    return 0;
}
