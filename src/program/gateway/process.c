/* Start and shutdown of `sluice gateway`. Its folder, which only this user can read, has Envoy's
 * configuration and the Unix sockets of Envoy's admin interface and of the picker's pages. */
#include "program/gateway/process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "core/base/compiler.h"
#include "core/base/log.h"
#include "core/event/clock.h"
#include "core/must/must.h"
#include "core/os/ready_file.h"
#include "net/transport/tls/server.h"
#include "program/gateway/envoy_config.h"
#include "program/gateway/envoy_process.h"
#include "program/gateway/find.h"
#include "program/gateway/pages.h"
#include "program/options/command.h"
#include "program/process/process.h"
#include "serve/frontend/keys.h"

struct gateway_process {
    const struct gateway_settings *settings;
    struct process process;
    struct arena *arena;
    char *folder;    /* "/tmp/sluice-gateway-…"; NULL: there is none */
    int folder_lock; /* its descriptor; -1: none */
    const char *config_file;
    struct envoy_sockets sockets;
    int held_port; /* a socket that is bound to the port of --http, and does not listen; -1: none */
    struct address http_address; /* with that port */
    bool has_socket_file;        /* it is a Unix socket, whose file is ours */
    struct tls_server *tls;      /* checks the files of TLS; NULL: without TLS */
    struct keys *keys;           /* NULL: no --keys */
    struct timer reload_timer;
    struct envoy_process envoy;
    struct gateway_pages pages;
    unsigned n_stopping; /* components that have not stopped */
    void (*stopped)(void *user);
    void *stopped_user;
    struct error failure; /* why the process ends by itself; ST_OK: it does not */
};

/* ---- the folder ------------------------------------------------------------------------------ */

static enum status fail_io(struct error *err, const char *what, const char *path) {
    return error_set(err, ST_IO, "%s %s: %s", what, path, strerror(errno));
}

static const char *path_in(const struct gateway_process *self, const char *name) {
    return arena_printf(self->arena, "%s/%s", self->folder, name).ptr;
}

/* In $TMPDIR, but for one whose name is too long for the address of a Unix socket. */
static enum status make_folder(struct gateway_process *self, struct error *err) {
    enum { LONGEST = sizeof(((struct sockaddr_un *)0)->sun_path) - 32 };
    const char *where = getenv("TMPDIR");
    where = where && where[0] == '/' && strlen(where) < LONGEST ? where : "/tmp";
    char *folder = (char *)arena_printf(self->arena, "%s/sluice-gateway-XXXXXX", where).ptr;
    if (!mkdtemp(folder)) {
        return fail_io(err, "making a folder", folder);
    }
    self->folder = folder;
    self->config_file = path_in(self, "envoy.yaml");
    self->sockets.admin = path_in(self, "admin");
    self->sockets.picker = path_in(self, "picker");
    self->sockets.answers = path_in(self, "answers");
    /* systemd-tmpfiles, which removes old files of /tmp, leaves a folder with a lock alone. */
    self->folder_lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (self->folder_lock < 0 || flock(self->folder_lock, LOCK_SH) != 0) {
        return fail_io(err, "locking", folder);
    }
    return ST_OK;
}

static void remove_folder(const struct gateway_process *self) {
    if (self->folder) {
        unlink(self->config_file);
        unlink(self->sockets.admin);
        unlink(self->sockets.picker);
        unlink(self->sockets.answers);
        unlink(arena_printf(self->arena, "%s/changed", self->folder).ptr);
        if (self->sockets.tls_cert) {
            unlink(self->sockets.tls_cert);
        }
        if (self->sockets.tls_client_ca) {
            unlink(self->sockets.tls_client_ca);
        }
        rmdir(self->folder);
    }
}

static enum status write_file(const char *path, struct str text, struct error *err) {
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!file) {
        return fail_io(err, "writing", path);
    }
    bool ok = fwrite(text.ptr, 1, text.len, file) == text.len;
    return fclose(file) == 0 && ok ? ST_OK : fail_io(err, "writing", path);
}

/* ---- TLS and keys ---------------------------------------------------------------------------- */

static enum status open_security(struct gateway_process *self, struct error *err) {
    const struct gateway_settings *settings = self->settings;
    struct tls_server_options options = {
        .cert = {"--http-tls-cert", settings->http_tls_cert},
        .key = {"--http-tls-key", settings->http_tls_key},
        .client_ca = {"--http-tls-client-ca", settings->http_tls_client_ca}};
    enum status st =
        gateway_has_tls(settings) ? tls_server_new(&options, time(NULL), &self->tls, err) : ST_OK;
    if (st == ST_OK && settings->keys) {
        st = keys_new(settings->keys, &self->keys, err);
        st = st == ST_OK ? st : error_prefix(err, "--keys");
    }
    return st;
}

static enum status write_secret(struct gateway_process *self, const char *name,
                                void (*print)(const struct gateway_settings *settings,
                                              const struct envoy_sockets *sockets, struct buf *out),
                                const char **out_path, struct error *err) {
    struct buf text;
    buf_init(&text, self->arena, 1024);
    print(self->settings, &self->sockets, &text);
    *out_path = path_in(self, name);
    return write_file(*out_path, buf_str(&text), err);
}

static enum status write_secrets(struct gateway_process *self, struct error *err) {
    enum status st = ST_OK;
    self->sockets.folder = self->folder;
    if (self->tls) {
        st = write_secret(self, "cert.yaml", envoy_config_print_cert, &self->sockets.tls_cert, err);
    }
    if (st == ST_OK && self->tls && self->settings->http_tls_client_ca) {
        st = write_secret(self, "client-ca.yaml", envoy_config_print_client_ca,
                          &self->sockets.tls_client_ca, err);
    }
    return st;
}

/* Files that have changed and are valid: a file that is renamed in the folder makes Envoy read them
 * again. */
static void reload_tls(struct gateway_process *self, bool at_once) {
    struct error err = {.text = "renaming a file"};
    if (!self->tls || !tls_server_reload(self->tls, time(NULL), at_once)) {
        return;
    }
    const char *from = path_in(self, "changed.new"), *to = path_in(self, "changed");
    if (write_file(from, STR(""), &err) != ST_OK || rename(from, to) != 0) {
        log_event(LOG_ERROR, "Envoy can't be told of new TLS files", LOG_CSTR("reason", err.text));
    }
}

static void reload_security(struct gateway_process *self, bool at_once) {
    reload_tls(self, at_once);
    if (self->keys) {
        keys_reload(self->keys, at_once);
    }
}

static void on_reload_timer(struct timer *timer) {
    struct gateway_process *self = CONTAINER_OF(timer, struct gateway_process, reload_timer);
    reload_security(self, false);
    timer_start(worker_timers(self->process.threads.main), timer,
                clock_now_ns() + self->settings->reload_interval_ns);
}

/* ---- the port -------------------------------------------------------------------------------- */

/* Envoy replaces the file of a Unix socket, also of one at which another process listens. */
static enum status hold_socket_file(struct gateway_process *self, struct error *err) {
    const struct address *address = &self->http_address;
    int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool is_used =
        probe >= 0 && connect(probe, (const struct sockaddr *)&address->storage, address->len) == 0;
    if (probe >= 0) {
        close(probe);
    }
    self->has_socket_file = !is_used;
    return is_used
               ? error_set(err, ST_IO, "--http %s: %s", self->settings->http, strerror(EADDRINUSE))
               : ST_OK;
}

/* Envoy listens with SO_REUSEPORT, beside any other process of this user that does. So the port is
 * bound here first, without it, which fails where another process listens; then Envoy may bind the
 * same, and does so again after a restart, on the port that the system chose. */
static enum status hold_port(struct gateway_process *self, struct error *err) {
    const struct gateway_settings *settings = self->settings;
    const int on = 1;
    self->http_address = settings->http_address;
    struct sockaddr *address = (struct sockaddr *)&self->http_address.storage;
    if (address_is_unix(&self->http_address)) {
        return hold_socket_file(self, err);
    }
    self->held_port = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (self->held_port < 0 ||
        setsockopt(self->held_port, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
        bind(self->held_port, address, self->http_address.len) != 0 ||
        getsockname(self->held_port, address, &self->http_address.len) != 0 ||
        setsockopt(self->held_port, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) != 0) {
        return error_set(err, ST_IO, "--http %s: %s", settings->http, strerror(errno));
    }
    return ST_OK;
}

/* ---- ready ----------------------------------------------------------------------------------- */

static const char *url_of(struct gateway_process *self) {
    char text[ADDRESS_TEXT_BYTES];
    bool local = address_is_unix(&self->http_address);
    return arena_printf(self->arena, "http%s%s%s", self->tls ? "s" : "", local ? "+" : "://",
                        address_print(&self->http_address, text))
        .ptr;
}

static enum status write_ready_file(struct gateway_process *self, struct error *err) {
    const char *urls[2] = {url_of(self), NULL};
    size_t n = 1;
    if (self->pages.listener.server) {
        urls[n++] = admin_listener_url(&self->pages.listener, self->arena);
    }
    return ready_file_write(&self->process.ready_file, urls, n, err);
}

/* Prints to a terminal where clients connect. */
static void greet(struct gateway_process *self) {
    if (self->settings->log_format != LOG_TEXT || !isatty(STDERR_FILENO)) {
        return;
    }
    const struct admin_listener *admin = &self->pages.listener;
    char address[ADDRESS_TEXT_BYTES] = "";
    fprintf(stderr, "\nready: %s", url_of(self));
    if (admin->server && !address_is_unix(&admin->address)) {
        fprintf(stderr, "; status page http://%s/", address_print(&admin->address, address));
    }
    fprintf(stderr, "\nstop:  Ctrl-C\n\n");
}

static void on_envoy_ready(void *user) {
    struct gateway_process *self = user;
    struct error err;
    if (self->process.draining) {
        envoy_process_drain(&self->envoy);
        return;
    }
    if (self->process.status) { /* it was ready before */
        log_message(LOG_INFO, "Envoy is ready again");
        return;
    }
    log_event(LOG_INFO, "ready", LOG_CSTR("http", url_of(self)));
    greet(self);
    process_set_ready(&self->process, "ready");
    if (self->settings->ready_file && write_ready_file(self, &err) != ST_OK) {
        log_event(LOG_ERROR, "cannot write the ready file", LOG_CSTR("reason", err.text));
    }
}

static void on_envoy_failed(void *user, const struct error *err) {
    struct gateway_process *self = user;
    if (!self->process.draining) {
        self->failure = *err;
        process_fail(&self->process);
    }
}

/* ---- callbacks of the process ---------------------------------------------------------------- */

static uint64_t count_in_flight(void *user) {
    struct gateway_process *self = user;
    return envoy_process_in_flight(&self->envoy);
}

static void log_state(void *user) {
    struct gateway_process *self = user;
    bool runs = self->envoy.subprocess != NULL;
    log_event(LOG_INFO, "Envoy",
              LOG_U64("pid", runs ? (uint64_t)subprocess_pid(self->envoy.subprocess) : 0),
              LOG_U64("starts", atomic_load(&self->envoy.n_starts)));
}

/* The picker looks at its files by itself. */
static void reload_files(void *user) {
    struct gateway_process *self = user;
    reload_security(self, true);
    envoy_process_reopen_logs(&self->envoy);
}

static void start_drain(void *user) {
    struct gateway_process *self = user;
    envoy_process_drain(&self->envoy);
}

static bool can_stop(void *user) {
    (void)user;
    return true;
}

static void on_stopped(void *user) {
    struct gateway_process *self = user;
    if (--self->n_stopping == 0) {
        self->stopped(self->stopped_user);
    }
}

static void stop_gateway(void *user, void (*stopped)(void *), void *stopped_user) {
    struct gateway_process *self = user;
    self->stopped = stopped;
    self->stopped_user = stopped_user;
    self->n_stopping = 2;
    timer_stop(worker_timers(self->process.threads.main), &self->reload_timer);
    gateway_pages_stop(&self->pages, self->process.threads.main, on_stopped, self);
    envoy_process_stop(&self->envoy, on_stopped, self);
}

/* The kernel kills Envoy when this process exits. */
static void unlink_files(void *user) {
    const struct gateway_process *self = user;
    remove_folder(self);
    if (self->has_socket_file) {
        address_unlink(&self->http_address);
    }
    address_unlink(&self->pages.listener.address);
}

static const struct process_handlers handlers = {
    .in_flight = count_in_flight,
    .log_state = log_state,
    .reload = reload_files,
    .drain = start_drain,
    .can_stop = can_stop,
    .stop = stop_gateway,
    .unlink = unlink_files,
};

/* ---- start ----------------------------------------------------------------------------------- */

static enum status write_config(struct gateway_process *self, struct error *err) {
    struct buf text;
    buf_init(&text, self->arena, 8192);
    envoy_config_print(self->settings, &self->http_address, &self->sockets, &text);
    return write_file(self->config_file, buf_str(&text), err);
}

static enum status start_envoy(struct gateway_process *self, const char *envoy,
                               const char *module_folder, struct error *err) {
    static const char *const LEVELS[] = {"error", "warning", "warning", "info"};
    struct arena *arena = self->arena;
    const char *const argv[] = {envoy,
                                "--config-path",
                                self->config_file,
                                "--concurrency",
                                arena_printf(arena, "%" PRIu64, self->settings->workers).ptr,
                                "--disable-hot-restart",
                                "--log-level",
                                LEVELS[self->settings->log_level],
                                "--log-format",
                                "[envoy][%l][%n] %v",
                                "--log-format-escaped",
                                NULL};
    const char *const env[] = {
        arena_printf(arena, "ENVOY_DYNAMIC_MODULES_SEARCH_PATH=%s", module_folder).ptr, NULL};
    const char **argv_kept = arena_calloc(arena, sizeof(argv) / sizeof(argv[0]), sizeof(*argv));
    const char **env_kept = arena_calloc(arena, sizeof(env) / sizeof(env[0]), sizeof(*env));
    memcpy(argv_kept, argv, sizeof(argv));
    memcpy(env_kept, env, sizeof(env));
    struct envoy_process_options options = {.worker = self->process.threads.main,
                                            .argv = argv_kept,
                                            .env = env_kept,
                                            .admin_socket = self->sockets.admin,
                                            .on_ready = on_envoy_ready,
                                            .on_failed = on_envoy_failed,
                                            .user = self};
    return envoy_process_start(&self->envoy, &options, err);
}

static enum status start_gateway(struct gateway_process *self, struct error *err) {
    const char *envoy = NULL, *module_folder = NULL;
    if (gateway_settings_check_pools(self->settings, err) != ST_OK ||
        gateway_find_envoy(self->settings, self->arena, &envoy, err) != ST_OK ||
        gateway_find_module(self->settings, self->arena, &module_folder, err) != ST_OK ||
        open_security(self, err) != ST_OK || process_start(&self->process, 0, err) != ST_OK ||
        hold_port(self, err) != ST_OK || make_folder(self, err) != ST_OK ||
        write_secrets(self, err) != ST_OK || write_config(self, err) != ST_OK) {
        return err->status;
    }
    self->reload_timer.on_expire = on_reload_timer;
    if (self->tls || self->keys) {
        on_reload_timer(&self->reload_timer);
    }
    struct gateway_pages_options pages = {
        .where = self->settings->metrics,
        .picker_socket = self->sockets.picker,
        .admin_socket = self->sockets.admin,
        .answers_at = arena_printf(self->arena, "unix:%s", self->sockets.answers).ptr,
        .settings = self->settings,
        .keys = self->keys,
        .envoy = &self->envoy,
        .worker = self->process.threads.admin};
    enum status st = gateway_pages_open(&self->pages, &pages, err);
    if (st != ST_OK) {
        return st;
    }
    ready_file_remove_stale(self->settings->ready_file);
    log_event(LOG_INFO, "starting Envoy", LOG_CSTR("program", envoy),
              LOG_CSTR("module", module_folder));
    return start_envoy(self, envoy, module_folder, err);
}

enum status gateway_process_run(const struct gateway_settings *settings, struct error *err) {
    struct gateway_process self = {
        .settings = settings,
        .held_port = -1,
        .folder_lock = -1,
        .arena = must_arena_new("the gateway"),
        .process = {.handlers = &handlers,
                    .user = &self,
                    .drain_timeout_ns = settings->drain_timeout_ns,
                    .ready_file = {.path = settings->ready_file}},
    };
    enum status st = start_gateway(&self, err);
    if (st == ST_OK) {
        process_run(&self.process);
    } else {
        process_abort(&self.process);
    }
    process_join(&self.process);
    envoy_process_free(&self.envoy);
    gateway_pages_free(&self.pages);
    process_free(&self.process);
    tls_server_free(self.tls);
    keys_free(self.keys);
    remove_folder(&self);
    if (self.has_socket_file) {
        address_unlink(&self.http_address);
    }
    if (self.held_port >= 0) {
        close(self.held_port);
    }
    if (self.folder_lock >= 0) {
        close(self.folder_lock);
    }
    if (st == ST_OK && self.failure.status != ST_OK) {
        *err = self.failure;
        st = err->status;
    }
    arena_free(self.arena);
    if (st == ST_OK) {
        log_message(LOG_INFO, "ended");
    }
    return st;
}

int gateway_print_config(const struct gateway_settings *settings, struct arena *arena) {
    struct envoy_sockets none = {.admin = NULL};
    struct buf text;
    buf_init(&text, arena, 8192);
    envoy_config_print(settings, &settings->http_address, &none, &text);
    return command_write_out("sluice gateway", &text);
}
