/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/link/pass_descriptors.h - a message over a unix socket that brings descriptors.
 *
 * One thread.  0 or -errno, without words.
 */
#ifndef CLI_LINK_PASS_DESCRIPTORS_H
#define CLI_LINK_PASS_DESCRIPTORS_H

#include <stddef.h>
#include <sys/types.h>

#define PASS_FDS_MAX 4

/* Send data[0..size) with n descriptors, of which the other side gets copies.  -EINTR: a signal. */
int pass_send(int socket, const void *data, size_t size, const int *fds, int n);
/* Receive a message without waiting: gives its bytes, 0 when the other side has gone, or -errno.
 * fds: PASS_FDS_MAX of them, -1 where none has come; they are the caller's. */
ssize_t pass_receive(int socket, void *room, size_t size, int fds[PASS_FDS_MAX]);

#endif
