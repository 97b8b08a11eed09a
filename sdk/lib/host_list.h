/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/host_list.h - lists of hosts in one word, as SLURM, pdsh and ClusterShell write them:
 * "node[01-16,20],gpu7", "r[1-2]n[0-7]", "node[1-8]:9922".
 *
 * Any thread; no state.
 */
#ifndef SDK_LIB_HOST_LIST_H
#define SDK_LIB_HOST_LIST_H

#include <stddef.h>

#define HOST_NAME_BYTES 512 /* of one name, NUL included */

/* fn gets each name in the order it is written; an address "[::1]:9922" is a name.  most: how many
 * names are taken at most.  0; what fn gave other than 0, which ends it; -EINVAL: it is no such
 * list; -E2BIG: it names more than `most`; -ENAMETOOLONG.  *ret_wrong: where in `text` it is none,
 * NULL where nothing is wrong with its form; may be NULL. */
int host_list_each(const char *text, size_t most, int (*fn)(void *arg, const char *name), void *arg,
                   const char **ret_wrong);

#endif
