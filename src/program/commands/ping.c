/* `sluice ping`: one ping of the client at a time, until Ctrl-C.
 *
 * Signals are read from a descriptor, so that poll waits for a response and for them. They are
 * blocked only when the first ping has started: until then the name may be resolved, which blocks,
 * and there is no summary yet. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "core/event/clock.h"
#include "core/must/must.h"
#include "program/commands/commands.h"
#include "program/commands/ping_report.h"
#include "program/commands/ping_settings.h"
#include "program/options/command.h"
#include "program/requests/command_client.h"
#include "program/requests/tls_client.h"

struct ping_run {
    struct ping_settings settings;
    struct error url; /* text: the URL as it can be printed */
    struct ping_report report;
    struct buf out;
    struct client_tls *tls; /* NULL: no TLS */
    struct command_client client;
    sigset_t signals;
    int signal_fd;
    bool held;        /* signals are received through signal_fd only */
    bool interrupted; /* a signal was received */
    bool failed;      /* writing to standard output failed */
};

/* ---- waiting --------------------------------------------------------------------------------- */

/* Waits for `events` on `fd` (-1: none) or until `timeout_ns` has passed, or for a signal. */
static void wait_for(struct ping_run *run, int fd, short events, uint64_t timeout_ns) {
    struct pollfd fds[] = {{.fd = run->signal_fd, .events = POLLIN}, {.fd = fd, .events = events}};
    struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / 1000000000),
                               .tv_nsec = (long)(timeout_ns % 1000000000)};
    (void)ppoll(fds, 2, timeout_ns == UINT64_MAX ? NULL : &timeout, NULL);
    run->interrupted = (fds[0].revents & POLLIN) != 0;
}

/* ---- one ping -------------------------------------------------------------------------------- */

static enum status open_client(struct ping_run *run, struct error *err) {
    const struct ping_settings *settings = &run->settings;
    const struct command_client_options options = {.server = &settings->server,
                                                   .tls = run->tls,
                                                   .metadata = &settings->metadata,
                                                   .connect_timeout_ns = settings->timeout_ns,
                                                   .timeout_ns = settings->timeout_ns};
    command_client_close(&run->client);
    return command_client_open(&options, &run->client, err);
}

static enum status ping_once(struct ping_run *run, struct error *err) {
    sluice_client *client = run->client.client;
    sluice_client_error error = {.size = sizeof(error)};
    sluice_call *call;
    sluice_client_status status = sluice_client_start_ping(client, NULL, &call, &error);
    if (status == SLUICE_CLIENT_OK) {
        sluice_client_step(client);
        if (!run->held) {
            run->held = sigprocmask(SIG_BLOCK, &run->signals, NULL) == 0;
        }
        while ((status = sluice_call_status(call, &error)) == SLUICE_CLIENT_PENDING) {
            wait_for(run, sluice_client_fd(client), POLLIN, sluice_client_timeout_ns(client));
            if (run->interrupted) {
                break;
            }
            sluice_client_step(client);
        }
        sluice_call_free(call); /* cancels it if a signal came */
    }
    return status == SLUICE_CLIENT_OK ? ST_OK : command_client_error(&error, err);
}

/* Flushes standard output after each line, for a reader that follows it. */
static void flush_out(struct ping_run *run) {
    run->failed = run->failed || fwrite(run->out.data, 1, run->out.len, stdout) != run->out.len ||
                  fflush(stdout) != 0;
    run->out.len = 0;
}

/* Sends a ping and prints the result. A ping that a signal interrupted is not counted. */
static void ping_and_report(struct ping_run *run) {
    struct error err;
    enum status status = ST_OK;
    if (run->settings.reconnect && run->report.n_sent > 0) {
        status = open_client(run, &err);
    }
    uint64_t began = clock_now_ns();
    if (status == ST_OK) {
        status = ping_once(run, &err);
    }
    if (run->interrupted) {
        return;
    }
    if (status == ST_OK) {
        ping_report_answer(&run->report, clock_now_ns() - began, &run->out);
    } else {
        ping_report_loss(&run->report, err.text, &run->out);
    }
    if (run->settings.quiet) {
        run->out.len = 0;
    }
    flush_out(run);
}

/* ---- the command ----------------------------------------------------------------------------- */

static void ping_all(struct ping_run *run) {
    static const char *const WHAT[] = {
        [CLIENT_HTTP] = "GET /v2/health/live",
        [CLIENT_GRPC] = "ServerLive",
        [CLIENT_MIP] = "a ping of MIP",
    };
    ping_report_begin(&run->report, WHAT[run->settings.server.protocol], run->settings.reconnect,
                      &run->out);
    flush_out(run);
    uint64_t began = clock_now_ns(), next = began;
    while (!run->failed) {
        ping_and_report(run);
        if (run->interrupted || run->failed ||
            (run->settings.count > 0 && run->report.n_sent == run->settings.count)) {
            break;
        }
        uint64_t now = clock_now_ns();
        next += run->settings.interval_ns;
        if (next > now) {
            wait_for(run, -1, 0, next - now);
        } else {
            next = now; /* a late response is not followed by a burst */
        }
        if (run->interrupted) {
            break;
        }
    }
    ping_report_end(&run->report, clock_now_ns() - began, &run->out);
    flush_out(run);
}

static int report_failure(const char *why) {
    fprintf(stderr, "sluice ping: %s\n", why);
    return EXIT_CODE_FAILED;
}

static int run_all(struct ping_run *run) {
    const struct ping_settings *settings = &run->settings;
    const struct tls_client_options tls = {settings->cacert, settings->cert, settings->key,
                                           settings->insecure};
    struct error err;
    if (tls_client_new(&tls, &settings->server, &run->tls, &err) != ST_OK) {
        return report_failure(err.text);
    }
    error_set(&run->url, ST_OK, "%s", settings->url);
    run->report = (struct ping_report){.json = settings->json, .url = run->url.text};
    if (open_client(run, &err) != ST_OK) {
        return report_failure(err.text);
    }
    run->signal_fd = signalfd(-1, &run->signals, SFD_CLOEXEC);
    if (run->signal_fd < 0) {
        return report_failure(strerror(errno));
    }
    ping_all(run);
    close(run->signal_fd);
    if (run->failed) {
        return report_failure("writing the result failed");
    }
    return run->report.n_answered > 0 ? EXIT_CODE_OK : EXIT_CODE_FAILED;
}

int cli_ping(int argc, char **argv) {
    struct ping_run run = {.signal_fd = -1};
    struct arena *arena = must_arena_new("the report");
    sigemptyset(&run.signals);
    sigaddset(&run.signals, SIGINT);
    sigaddset(&run.signals, SIGTERM);
    buf_init(&run.out, arena, 0);
    int code = ping_settings_read(argc, argv, arena, &run.settings);
    if (code == COMMAND_CONTINUE) {
        code = run_all(&run);
    }
    command_client_close(&run.client);
    client_tls_free(run.tls);
    arena_free(arena);
    return code;
}
