/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/proc/cgroup_test.c - folders of groups by mounts that somebody has written.
 */
#include "sdk/lib/proc/cgroup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/test.h"

#define FIND(group, controller) \
    (proc_cgroup_in_mounts(mounts, group, controller, &at) ? at.path : "none")

TEST(folders_of_groups)
{
    char root[] = "/tmp/groups-XXXXXX", mounts[64];
    char far[PROC_CGROUP_BYTES + 8] = "/";
    struct proc_cgroup_folder at;
    CHECK(mkdtemp(root) != NULL);
    (void)snprintf(mounts, sizeof(mounts), "%s/mountinfo", root);
    FILE *f = fopen(mounts, "w");
    CHECK(f &&
          fputs("nonsense\n"
                "1 2 0:3 / /tmp/fake rw - tmpfs cgroup2 rw\n"
                "30 25 0:26 / /sys/fs/cgroup/a\\040b rw shared:4 - cgroup cgroup rw,cpu,cpuacct\n"
                "31 25 0:27 /docker/1 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
                "32 25 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n",
                f) >= 0 &&
          fclose(f) == 0);
    CHECK_STR(FIND("/x", "cpuacct"), "/sys/fs/cgroup/a b/x");
    CHECK_INT(at.point, strlen("/sys/fs/cgroup/a b"));
    CHECK_STR(FIND("/x", "cpua"), "none");
    CHECK_STR(FIND("/docker/1", "memory"), "/sys/fs/cgroup/memory");
    CHECK_STR(FIND("/docker/1/x", "memory"), "/sys/fs/cgroup/memory/x");
    CHECK_STR(FIND("/docker/12", "memory"), "/sys/fs/cgroup/memory"); /* not below: what there is */
    CHECK_STR(FIND("/", ""), "/sys/fs/cgroup/unified");
    CHECK_STR(FIND("/../x", ""), "none");
    CHECK_STR(FIND("/a..b/x", ""), "/sys/fs/cgroup/unified/a..b/x");
    memset(far + 1, 'x', sizeof(far) - 2);
    CHECK_STR(FIND(far, ""), "none");
    CHECK_STR(FIND("/a/b", ""), "/sys/fs/cgroup/unified/a/b");
    CHECK(proc_cgroup_parent(&at) && proc_cgroup_parent(&at));
    CHECK_STR(at.path, "/sys/fs/cgroup/unified");
    CHECK(!proc_cgroup_parent(&at));
    CHECK_INT(unlink(mounts), 0);
    CHECK_INT(rmdir(root), 0);
}

int main(void)
{
    RUN(folders_of_groups);
    return test_end();
}
