/* sluice: the process of all subcommands (program/commands/commands.def). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "program/commands/commands.h"
#include "program/options/exit_code.h"

/* Read by jemalloc where the program is linked with it: freed memory is returned to the system
 * within seconds, also when the process is idle. Without oversize_threshold jemalloc returns blocks
 * of 8 MiB and more at once, and the page faults of the next block take seven times as long as a
 * simple model's run over it. */
extern const char *malloc_conf;
__attribute__((visibility("default"))) const char *malloc_conf =
    "background_thread:true,max_background_threads:1,dirty_decay_ms:2000,muzzy_decay_ms:0,"
    "oversize_threshold:4294967296";

/* Descriptors 0 to 2 that the parent process has closed become /dev/null. Else the next files that
 * are opened get their numbers: the log would be written to a client, and libuv, which never closes
 * these three, aborts when it is to close one. */
static void open_standard_descriptors(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
            open("/dev/null", fd == STDIN_FILENO ? O_RDONLY : O_WRONLY) != fd) {
            _exit(EXIT_CODE_FAILED); /* there is nowhere to say why */
        }
    }
}

int main(int argc, char **argv) {
    open_standard_descriptors();
    int code = commands_run(argc, argv);
    /* A failed write to a redirected output is a failure. */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        return EXIT_CODE_FAILED;
    }
    return code;
}
