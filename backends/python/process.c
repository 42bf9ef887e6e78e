/* Processes are started with posix_spawn: the server has many threads and much memory, neither of
 * which a fork should copy. */
#include "python/process.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/text.h"
#include "python/environment.h"

enum {
    WORKER_FD = 3, /* of the socket, in the worker */
    ABOVE_FD = 16, /* descriptors that are passed are above those that they become */
};

/* ---- the environment ------------------------------------------------------------------------- */

static char **the_environment;

int process_keep_environment(void) {
    size_t n = 0;
    if (the_environment) {
        return 1;
    }
    /* Not `environ`: a program that was linked against symbols alone, as the portable build is, may
     * have a copy of that, which nothing sets. */
    while (__environ[n]) {
        n++;
    }
    char **kept = calloc(n + 1, sizeof(*kept));
    for (size_t i = 0; kept && i < n; i++) {
        kept[i] = strdup(__environ[i]);
        if (!kept[i]) {
            return 0;
        }
    }
    the_environment = kept;
    return kept != NULL;
}

char *const *process_environment(void) {
    return the_environment ? the_environment : __environ;
}

const char *process_getenv(const char *name) {
    size_t n = strlen(name);
    for (char *const *item = process_environment(); *item; item++) {
        if (strncmp(*item, name, n) == 0 && (*item)[n] == '=') {
            return *item + n + 1;
        }
    }
    return NULL;
}

/* ---- the interpreter ------------------------------------------------------------------------- */

static int is_program(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0;
}

static int is_directory(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Returns: 0 when no directory of PATH has the program. */
static int find_in_path(const char *name, char out[PATH_MAX]) {
    const char *at = process_getenv("PATH");
    while (at && *at) {
        size_t n = strcspn(at, ":");
        int wrote = snprintf(out, PATH_MAX, "%.*s/%s", (int)n, at, name);
        if (n > 0 && wrote > 0 && wrote < PATH_MAX && is_program(out)) {
            return 1;
        }
        at += n + (at[n] == ':' ? 1 : 0);
    }
    return 0;
}

/* Triton's name for the model's directory in a path. */
static int expand(const char *value, const char *directory, char out[PATH_MAX]) {
    static const char name[] = "$$TRITON_MODEL_DIRECTORY";
    int wrote = strncmp(value, name, sizeof(name) - 1) == 0
                    ? snprintf(out, PATH_MAX, "%s%s", directory, value + sizeof(name) - 1)
                    : snprintf(out, PATH_MAX, "%s", value);
    return wrote > 0 && wrote < PATH_MAX;
}

static int resolve(const char *value, const char *directory, char out[PATH_MAX]) {
    static const char *const names[] = {"bin/python3", "bin/python"};
    char path[PATH_MAX];
    if (!expand(value, directory, path)) {
        return 0;
    }
    if (!strchr(path, '/') && !is_directory(path)) {
        return find_in_path(path, out);
    }
    for (size_t i = 0; is_directory(path) && i < sizeof(names) / sizeof(names[0]); i++) {
        int wrote = snprintf(out, PATH_MAX, "%s/%s", path, names[i]);
        if (wrote > 0 && wrote < PATH_MAX && is_program(out)) {
            return 1;
        }
    }
    return snprintf(out, PATH_MAX, "%s", path) < PATH_MAX && is_program(out);
}

/* The virtual environment that the server's program is installed in: a wheel puts it into bin/. Its
 * user expects the packages of that environment, whether it is active or not. Returns: 0 when there
 * is none. */
static int find_own_environment(char out[PATH_MAX]) {
    char program[PATH_MAX], path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
    program[n > 0 ? n : 0] = '\0';
    for (int i = 0; i < 2; i++) { /* DIR/bin/sluice */
        char *slash = strrchr(program, '/');
        if (!slash) {
            return 0;
        }
        *slash = '\0';
    }
    int wrote = snprintf(path, sizeof(path), "%s/pyvenv.cfg", program);
    if (wrote < 0 || (size_t)wrote >= sizeof(path) || access(path, F_OK) != 0) {
        return 0;
    }
    wrote = snprintf(out, PATH_MAX, "%s/bin/python3", program);
    return wrote > 0 && wrote < PATH_MAX && is_program(out);
}

/* A packed environment. */
static sluice_status find_packed(const struct python_choice *choice, const char *path,
                                 struct python *python, sluice_error *error) {
    char environment[PATH_MAX];
    sluice_error why;
    sluice_status status = environment_unpack(path, choice->cache, choice->max_bytes, environment,
                                              sizeof(environment), &python->environment, &why);
    if (status != SLUICE_OK) {
        return error_set(error, status, "%s: %.480s", python->origin, why.text);
    }
    if (!resolve(environment, "", python->path)) {
        return error_set(error, SLUICE_INVALID_ARGUMENT, "%s: %.300s: it has no bin/python3",
                         python->origin, path);
    }
    return SLUICE_OK;
}

void python_fini(struct python *python) {
    if (python->environment >= 0) {
        close(python->environment);
    }
}

sluice_status python_find(const struct python_choice *choice, const char *directory,
                          struct python *python, sluice_error *error) {
    const struct {
        const char *value, *origin;
    } sources[] = {
        {choice->of_model, "parameter python"},
        {choice->of_env, "parameter EXECUTION_ENV_PATH"},
        {choice->of_server, "--python"},
        {process_getenv("VIRTUAL_ENV"), "$VIRTUAL_ENV"},
    };
    char path[PATH_MAX];
    python->environment = -1;
    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
        const char *value = sources[i].value;
        if (!value || !value[0]) {
            continue;
        }
        python->origin = sources[i].origin;
        if (value == choice->of_env && environment_is_packed(value) &&
            expand(value, directory, path) && !is_directory(path)) {
            return find_packed(choice, path, python, error);
        }
        if (resolve(value, directory, python->path)) {
            return SLUICE_OK;
        }
        return error_set(error, SLUICE_INVALID_ARGUMENT,
                         "%s: expected a Python interpreter, or a directory that has bin/python3, "
                         "got %.300s",
                         python->origin, value);
    }
    python->origin = "the environment of sluice";
    if (find_own_environment(python->path)) {
        return SLUICE_OK;
    }
    python->origin = "PATH";
    return find_in_path("python3", python->path)
               ? SLUICE_OK
               : error_set(error, SLUICE_INVALID_ARGUMENT,
                           "models in Python need an interpreter: PATH has no python3, and neither "
                           "--python nor the model's parameter python names one");
}

/* ---- start ----------------------------------------------------------------------------------- */

/* The worker's program is in the directory of this library. */
static int find_worker(char out[PATH_MAX]) {
    Dl_info info;
    if (!dladdr((const void *)&find_in_path, &info) || !info.dli_fname) {
        return 0;
    }
    const char *slash = strrchr(info.dli_fname, '/');
    int n = slash ? (int)(slash - info.dli_fname) : 1;
    int wrote =
        snprintf(out, PATH_MAX, "%.*s/python/worker/__main__.py", n, slash ? info.dli_fname : ".");
    return wrote > 0 && wrote < PATH_MAX && access(out, R_OK) == 0;
}

static void close_fd(int *fd) {
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

/* Moves a descriptor above those that the worker's become. */
static int move_up(int *fd) {
    int moved = fcntl(*fd, F_DUPFD_CLOEXEC, ABOVE_FD);
    if (moved >= 0) {
        close(*fd);
        *fd = moved;
    }
    return moved >= 0;
}

/* `theirs`: the worker's ends of the socket and of the pipe. */
static int make_ends(struct process *process, int theirs[2]) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        return 0;
    }
    process->socket = ends[0];
    theirs[0] = ends[1];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return 0;
    }
    process->lines = ends[0];
    theirs[1] = ends[1];
    return fcntl(process->lines, F_SETFL, O_NONBLOCK) == 0 && move_up(&theirs[0]) &&
           move_up(&theirs[1]);
}

/* The variables by which libraries of numerics are told how many threads to use. */
static const char *const thread_variables[] = {
    "OMP_NUM_THREADS",        "OPENBLAS_NUM_THREADS",  "MKL_NUM_THREADS",   "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",    "NUMEXPR_MAX_THREADS",   "RAYON_NUM_THREADS", "NUMBA_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS", "VECLIB_MAXIMUM_THREADS"};

enum {
    N_THREAD_VARIABLES = sizeof(thread_variables) / sizeof(thread_variables[0]),
    VARIABLE_BYTES = 64,
};

/* What the worker's environment has in place of the server's. */
struct additions {
    char texts[N_THREAD_VARIABLES][VARIABLE_BYTES];
    char *items[N_THREAD_VARIABLES + 2];
    size_t n;
};

/* Output that comes at once, imports that leave no files in the model's directory, and the number
 * of threads. */
static void list_additions(struct additions *additions, int n_threads) {
    static char unbuffered[] = "PYTHONUNBUFFERED=1", no_files[] = "PYTHONDONTWRITEBYTECODE=1";
    additions->n = 0;
    additions->items[additions->n++] = unbuffered;
    additions->items[additions->n++] = no_files;
    for (size_t i = 0; n_threads > 0 && i < N_THREAD_VARIABLES; i++) {
        snprintf(additions->texts[i], VARIABLE_BYTES, "%s=%d", thread_variables[i], n_threads);
        additions->items[additions->n++] = additions->texts[i];
    }
}

static int is_added(const struct additions *additions, const char *variable) {
    size_t n = strcspn(variable, "=") + 1;
    for (size_t i = 0; i < additions->n; i++) {
        if (strncmp(variable, additions->items[i], n) == 0) {
            return 1;
        }
    }
    return 0;
}

/* The server's environment, with the additions. */
static char **make_environment(struct additions *additions) {
    char *const *from = process_environment();
    size_t n = 0, n_kept = 0;
    while (from[n]) {
        n++;
    }
    char **made = calloc(n + additions->n + 1, sizeof(*made));
    if (made) {
        for (size_t i = 0; i < n; i++) {
            if (!is_added(additions, from[i])) {
                made[n_kept++] = from[i];
            }
        }
        memcpy(made + n_kept, additions->items, additions->n * sizeof(*made));
    }
    return made;
}

static int spawn(struct process *process, const char *python, char *worker, char *model,
                 int n_threads, const int theirs[2]) {
    static char name[] = "python3", fd[] = "3";
    char *argv[] = {name, worker, fd, model, NULL};
    struct additions additions;
    list_additions(&additions, n_threads);
    char **environment = make_environment(&additions);
    if (!environment) {
        return ENOMEM;
    }
    argv[0] = (char[PATH_MAX]){0};
    snprintf(argv[0], PATH_MAX, "%s", python); /* venv's finds its packages by it */
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, defaults;
    sigemptyset(&none);
    sigfillset(&defaults);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, theirs[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, theirs[1], STDERR_FILENO);
    posix_spawn_file_actions_adddup2(&actions, theirs[0], WORKER_FD);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                              POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attributes, 0); /* ^C is the server's, and all of it can be killed */
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    int failed = posix_spawn(&process->pid, python, &actions, &attributes, argv, environment);
    process->pid = failed ? 0 : process->pid;
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    free(environment);
    return failed;
}

sluice_status process_start(struct process *process, const struct python *python, char *model,
                            int n_threads, sluice_error *error) {
    char worker[PATH_MAX];
    int theirs[2] = {-1, -1};
    *process = (struct process){.socket = -1, .lines = -1};
    if (!find_worker(worker)) {
        return error_set(error, SLUICE_INTERNAL,
                         "the program of Python workers is not beside the python backend "
                         "(python/worker/__main__.py in --backend-dir)");
    }
    int failed = make_ends(process, theirs)
                     ? spawn(process, python->path, worker, model, n_threads, theirs)
                     : errno;
    close_fd(&theirs[0]);
    close_fd(&theirs[1]);
    if (failed) {
        close_fd(&process->socket);
        close_fd(&process->lines);
        return error_set(
            error,
            failed == EAGAIN || failed == EMFILE || failed == ENFILE ? SLUICE_UNAVAILABLE
                                                                     : SLUICE_INTERNAL,
            "%.300s (%s) could not be started: %s", python->path, python->origin, strerror(failed));
    }
    return SLUICE_OK;
}

/* ---- end ------------------------------------------------------------------------------------- */

int process_has_ended(const struct process *process) {
    siginfo_t info = {.si_pid = 0};
    return waitid(P_PID, (id_t)process->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
           info.si_pid != 0;
}

int process_kill(struct process *process) {
    int status = 0;
    if (process->pid > 0) {
        kill(-process->pid, SIGKILL);
        kill(process->pid, SIGKILL); /* before it has a group of its own */
        while (waitpid(process->pid, &status, 0) < 0 && errno == EINTR) {
        }
        process->pid = 0;
    }
    return status;
}

void process_close(struct process *process) {
    close_fd(&process->socket);
    close_fd(&process->lines);
}

void process_describe_end(int status, char *out, size_t n_bytes) {
    if (WIFSIGNALED(status)) {
        snprintf(out, n_bytes, "was ended by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    } else {
        snprintf(out, n_bytes, "exited with code %d", WEXITSTATUS(status));
    }
}
