/* The worker process of an instance: which Python runs it, its start and its end, its socket, and
 * the lines that it writes. */
#ifndef SLUICE_PYTHON_PROCESS_H
#define SLUICE_PYTHON_PROCESS_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "sluice/backend.h"

/* Where the settings that name an interpreter come from, in the order in which they count. */
struct python_choice {
    const char *of_model;  /* parameter `python` */
    const char *of_env;    /* parameter EXECUTION_ENV_PATH */
    const char *of_server; /* --python */
    const char *cache;     /* of packed environments; NULL: the user's */
    uint64_t max_bytes;    /* of one, unpacked */
};

struct python {
    char path[PATH_MAX];
    const char *origin; /* "parameter python", for messages */
    int environment;    /* the lock of a packed one; -1: none */
};

/* Finds the interpreter: a program, a virtual environment or another directory that has
 * bin/python3; a name without a slash is looked up in PATH. A packed environment is unpacked, which
 * may take minutes. `directory`: the model's, which $$TRITON_MODEL_DIRECTORY stands for. Owns: the
 * caller calls python_fini in any case. Returns: SLUICE_INVALID_ARGUMENT when the first one that is
 * set does not lead to a program. */
sluice_status python_find(const struct python_choice *choice, const char *directory,
                          struct python *python, sluice_error *error);

void python_fini(struct python *python);

/* Copies the environment, when the library is loaded: others that are loaded later may change that
 * of the process (setenv) while threads read it. Returns: 0 when out of memory. Thread: as
 * sluice_backend_entry. */
int process_keep_environment(void);
/* The copy, or without one what the process has. Thread: any. */
char *const *process_environment(void);
/* As getenv, of the copy. */
const char *process_getenv(const char *name);

struct process {
    pid_t pid;  /* 0: none */
    int socket; /* -1: none */
    int lines;  /* standard output and error; -1: none */
};

/* Starts the worker's program. It ends with the thread that calls this, at the latest. `model`: the
 * name that its arguments end with, as lists of processes show it. `n_threads`: that libraries in
 * it are told to use; 0: as the server's environment says. */
sluice_status process_start(struct process *process, const struct python *python, char *model,
                            int n_threads, sluice_error *error);
/* Returns: whether it has ended; it is not waited for yet. */
int process_has_ended(const struct process *process);
/* Kills what is left of it (its process group) and waits. Returns: its wait status. What it wrote
 * can still be read from `lines`. */
int process_kill(struct process *process);
/* Closes the descriptors. */
void process_close(struct process *process);
/* "was ended by signal 9 (Killed)", "exited with code 1". */
void process_describe_end(int status, char *out, size_t n_bytes);

#endif
