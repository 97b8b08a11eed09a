/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/job/host_list.h - lists of hosts in one word, as SLURM, pdsh and ClusterShell write them:
 * "node[01-16,20],gpu7", "r[1-2]n[0-7]", "node[1-8]:9922".
 *
 * Any thread; no state.
 */
#ifndef CLI_JOB_HOST_LIST_H
#define CLI_JOB_HOST_LIST_H

#include <stddef.h>

#define HOST_NAME_BYTES 512               /* of one name, NUL included */
#define HOST_LIST_BYTES ((size_t)8 << 20) /* of all names of a list */

/* fn gets each name in the order it is written; an address "[::1]:9922" is a name.  All of the list
 * is read, and what it means is counted, before fn gets the first.  0; what fn gave other than 0,
 * which ends it; -EINVAL: it is no such list; -E2BIG: it names more than `most`, or they have more
 * than HOST_LIST_BYTES; -ENAMETOOLONG.  *ret_wrong: where in `text` it is none, or where the name
 * begins that is too long, or that leads beyond the limit; NULL where nothing is wrong with it; may
 * be NULL. */
int host_list_each(const char *text, size_t most, int (*fn)(void *arg, const char *name), void *arg,
                   const char **ret_wrong);

#endif
