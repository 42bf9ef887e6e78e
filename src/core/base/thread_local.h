/* A thread's own variable, found without a call. For what is linked into programs: a library that
 * is loaded later may find no room for it. */
#ifndef SLUICE_CORE_BASE_THREAD_LOCAL_H
#define SLUICE_CORE_BASE_THREAD_LOCAL_H

#define THREAD_LOCAL _Thread_local __attribute__((tls_model("initial-exec")))

#endif
