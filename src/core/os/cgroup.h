/* The control groups of this process, v1 and v2: which folders hold their files. A group is limited
 * by its parents' limits too, so a reader takes the smallest along the path. A file that is missing
 * or malformed is no limit. */
#ifndef SLUICE_CORE_OS_CGROUP_H
#define SLUICE_CORE_OS_CGROUP_H

#include "core/base/str.h"

/* Of the running process. Tests have folders of their own. */
#define CGROUP_PROC "/proc/self/cgroup"
#define CGROUP_MOUNT "/sys/fs/cgroup"

enum { CGROUP_FILE_BYTES = 8192 };

enum cgroup_version { CGROUP_V1 = 1, CGROUP_V2 = 2 };

/* `folder`: a group's, as "/sys/fs/cgroup/a/b". It need not exist. */
typedef void cgroup_visitor(void *user, enum cgroup_version version, const char *folder);

/* Calls `visit` for each group of a process whose /proc/self/cgroup is `proc_cgroup`, from its own
 * up to the root, with the groups mounted under `mount`. Of v1 only the groups of `controller`
 * ("cpu"). A group may be visited twice. In a container the path may be the host's and not exist:
 * then only the parents that exist have files. Thread: any. */
void cgroup_walk(const char *proc_cgroup, const char *mount, const char *controller,
                 cgroup_visitor *visit, void *user);

/* Reads the file `name` of a group; cgroup_read_line: its first line, without spaces around it.
 * Returns: ptr NULL when the file cannot be read, or has CGROUP_FILE_BYTES or more. Owns: the text
 * is in `out`. Thread: any. */
struct str cgroup_read_file(const char *folder, const char *name, char out[CGROUP_FILE_BYTES]);
struct str cgroup_read_line(const char *folder, const char *name, char out[CGROUP_FILE_BYTES]);

#endif
