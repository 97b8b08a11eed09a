/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/terminal/limits.c - what the shell allows this command (ulimit), in words that help.
 *
 * One thread.
 */
#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#include "cli/cli.h"
#include "core/base/err.h"

#define FILES_NEEDED 24 /* to ask several, one after the other: below 16 something always fails */

const char *cli_fork_why(int e)
{
    return e == EAGAIN ? "you may have no more processes and threads (ulimit -u), or the container "
                         "may not (pids of its cgroup)"
                       : strerror(e);
}

int cli_check_files(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) == -1 || files.rlim_cur >= FILES_NEEDED)
        return 0;
    files.rlim_cur = files.rlim_max < FILES_NEEDED ? files.rlim_max : FILES_NEEDED;
    if (setrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur >= FILES_NEEDED)
        return 0;
    return err_set(-EMFILE,
                   "this shell allows %llu open files (ulimit -n), and to ask several processes "
                   "takes %d at least: ulimit -n 1024, in a new shell if it is refused",
                   (unsigned long long)files.rlim_cur, FILES_NEEDED);
}
