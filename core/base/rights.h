/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/rights.h - what the core makes of whose the process is (sdk/lib/proc/identity.h): its
 * files belong to the process's owner, and it opens no file that somebody else may have written.
 *
 * Any thread.
 */
#ifndef CORE_BASE_RIGHTS_H
#define CORE_BASE_RIGHTS_H

/* Let the calling thread, and all that it starts, make files as identity_owner(), whatever id the
 * program has put on.  A later change of ids by the program takes that back; nothing else of the
 * thread or the process changes.  -EPERM: it cannot be, or threads belong to different users. */
int rights_take(void);

/* The same before files are made or removed later, if the program has put on other rights since;
 * else it costs four short system calls. */
void rights_keep(void);

/* May what is in an open file run with the rights of this process?  The file belongs to root or the
 * owner of the process, and nobody else may write to it, or rename anything above it.  A group may
 * write when it is the process's own, and the owner is not root.  -EPERM: who else
 * may. */
int rights_file_check(int fd);

#endif
