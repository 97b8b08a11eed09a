/* SPDX-License-Identifier: Apache-2.0
 *
 * core/compat/cloexec.c - no descriptor of ours, or of a library linked into us, survives an exec.
 *
 * Threads: any; async-signal-safe as open(2) is.
 * LMDB 0.9 opens its data file without O_CLOEXEC.  Setting the flag afterwards leaves a moment in
 * which a vfork() of another thread hands the file on; so the linker sends every call of open() in
 * libprobing.so here (core/SConscript).  Can go when LMDB asks for it (mdb_fopen in its mdb.c).
 */
#include <fcntl.h>
#include <stdarg.h>

int __real_open(const char *path, int flags, ...);
int __real_open64(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);

static mode_t mode_of(int flags, va_list args)
{
    return flags & (O_CREAT | O_TMPFILE) ? (mode_t)va_arg(args, unsigned) : 0;
}

int __wrap_open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = mode_of(flags, args);
    va_end(args);
    return __real_open(path, flags | O_CLOEXEC, mode);
}

int __wrap_open64(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = mode_of(flags, args);
    va_end(args);
    return __real_open64(path, flags | O_CLOEXEC, mode);
}
