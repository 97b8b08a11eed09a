/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/proc/cgroup.h - where the folder of a process's cgroup is: versions 1 and 2, mounted
 * anywhere, seen from inside of a container or not.
 *
 * Any thread; no state.  What the files say may be made by whoever may make
 * cgroups and mounts: a path with ".." in it, or one that does not fit, is not followed.
 */
#ifndef SDK_LIB_PROC_CGROUP_H
#define SDK_LIB_PROC_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define PROC_CGROUP_BYTES 1024

struct proc_cgroup_folder {
    char path[PROC_CGROUP_BYTES]; /* "": none */
    size_t point;                 /* bytes of path: where the hierarchy is mounted */
};

/* controller: "memory" of version 1; "" is version 2.  Where no mount shows the group, as it is one
 * of outside, the one at the mount is what the container was given: its own.  false: it is in
 * none, or none is mounted here. */
bool proc_cgroup_folder(pid_t pid, const char *controller, struct proc_cgroup_folder *ret);
/* The same by a mountinfo file and the group's path in its hierarchy. */
bool proc_cgroup_in_mounts(const char *mounts, const char *group, const char *controller,
                           struct proc_cgroup_folder *ret);
/* Its cgroup is frozen (docker pause, systemctl freeze): no thread of it runs, and no signal wakes
 * it.  false, too: it cannot be seen from here. */
bool proc_is_frozen(pid_t pid);
/* Go to the group around it; false: it is the one at the mount. */
bool proc_cgroup_parent(struct proc_cgroup_folder *f);

#endif
