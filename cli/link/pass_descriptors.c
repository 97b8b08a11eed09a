/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/link/pass_descriptors.c - see pass_descriptors.h.
 *
 * One thread.
 */
#include "cli/link/pass_descriptors.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

int pass_send(int socket, const void *data, size_t size, const int *fds, int n)
{
    _Alignas(struct cmsghdr) char rights[CMSG_SPACE(PASS_FDS_MAX * sizeof(int))] = {0};
    struct iovec part = {(void *)(uintptr_t)data, size};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};

    if (n > 0) {
        m.msg_control = rights;
        m.msg_controllen = CMSG_SPACE((size_t)n * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
        memcpy(CMSG_DATA(c), fds, (size_t)n * sizeof(int));
    }
    return sendmsg(socket, &m, MSG_NOSIGNAL) == -1 ? -errno : 0;
}

ssize_t pass_receive(int socket, void *room, size_t size, int fds[PASS_FDS_MAX])
{
    _Alignas(struct cmsghdr) char rights[CMSG_SPACE(PASS_FDS_MAX * sizeof(int))];
    struct iovec part = {room, size};
    struct msghdr m = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = rights, .msg_controllen = sizeof(rights)};

    for (int i = 0; i < PASS_FDS_MAX; i++)
        fds[i] = -1;
    ssize_t n = recvmsg(socket, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    const struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;
    if (c != NULL && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
        memcpy(fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
    return n == -1 ? -errno : n;
}
