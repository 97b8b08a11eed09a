/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/python/stand_in/slow_end.c - a library to preload that widens a window in CPython's end.
 *
 * A thread that gets the GIL while the interpreter ends is held back after it has let go the GIL's
 * mutex in take_gil().  By then its thread state is freed, and to 3.12 it reads that state next.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define HELD_NS 15000000 /* longer than two turns of the GIL */

static int (*unlock)(pthread_mutex_t *mutex);
static int (*initialized)(void);
static _Atomic int begun;
static __thread int unlocks; /* of this thread since the end began */

__attribute__((visibility("default"))) int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    if (!unlock) {
        unlock = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_unlock");
        initialized = (int (*)(void))dlsym(RTLD_DEFAULT, "Py_IsInitialized");
    }
    int rc = unlock(mutex);
    int now = initialized && initialized();
    if (now)
        atomic_store(&begun, 1);
    /* The second one is take_gil()'s; the first was its look whether it may have the GIL. */
    if (!now && atomic_load(&begun) && syscall(SYS_gettid) != getpid() && ++unlocks == 2)
        (void)nanosleep(&(struct timespec){.tv_nsec = HELD_NS}, NULL);
    return rc;
}
