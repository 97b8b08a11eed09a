/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/sampling/reader_thread.h - the thread of a plugin's own that reads what its samplers took.
 */
#ifndef SAMPLING_READER_THREAD_H
#define SAMPLING_READER_THREAD_H

#include <pthread.h>

/* Begin it, with every signal but SIGBUS blocked, which mends a lost page of the store.  0 or
 * -errno.  The caller joins it.                                                    [control] */
int reader_thread_start(pthread_t *ret, void *(*run)(void *arg), void *arg);

#endif
