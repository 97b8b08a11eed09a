/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/profile/offcpu.c - /proc/self/task/TID/syscall and a copy of the stack.
 *
 * The profiler's thread only; nothing kept.
 */
#include "offcpu.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static bool hex(const char *text, uint64_t *ret)
{
    uint64_t value = 0;
    if (strncmp(text, "0x", 2) != 0)
        return false;
    for (text += 2;; text++) {
        if (*text >= '0' && *text <= '9')
            value = value << 4 | (uint64_t)(*text - '0');
        else if (*text >= 'a' && *text <= 'f')
            value = value << 4 | (uint64_t)(*text - 'a' + 10);
        else
            break;
    }
    *ret = value;
    return value != 0;
}

/* "202 0x1 ... 0x6 SP IP", "-1 SP IP" outside of system calls, or "running". */
static enum outside place_of(int32_t tid, uint64_t *ret_sp, uint64_t *ret_ip)
{
    char path[64], text[256], *words[10];
    int n = 0;
    (void)snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd == -1)
        return OUTSIDE_UNKNOWN;
    ssize_t size = read(fd, text, sizeof(text) - 1);
    (void)close(fd);
    text[size > 0 ? size : 0] = '\0';
    if (strncmp(text, "running", 7) == 0)
        return OUTSIDE_READY;
    for (char *at = text; at && n < 10; n++) {
        words[n] = at;
        at = strchr(at, ' ');
        at = at ? at + 1 : NULL;
    }
    return n >= 3 && hex(words[n - 2], ret_sp) && hex(words[n - 1], ret_ip) ? OUTSIDE_WAITS
                                                                            : OUTSIDE_UNKNOWN;
}

enum outside outside_look(int32_t tid, struct registers *ret, uint8_t *ret_stack, uint32_t room,
                          uint32_t *ret_bytes)
{
    uint64_t sp, ip;
    enum outside is = place_of(tid, &sp, &ip);
    if (is != OUTSIDE_WAITS)
        return is;
    struct iovec to = {ret_stack, room}, from = {(void *)(uintptr_t)sp, room};
    ssize_t n = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
    *ret_bytes = n > 0 ? (uint32_t)n : 0;
    *ret = (struct registers){.known = UINT64_C(1) << CFI_SP, .ip = ip};
    ret->value[CFI_SP] = sp;
    return is;
}
