/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/starved.h - whether a process that does not answer has had a processor.
 *
 * Any thread; reads /proc.
 */
#ifndef CLI_TARGET_STARVED_H
#define CLI_TARGET_STARVED_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* How long the threads of probing in a process have been ready to run and did not, in ns, since
 * they began; 0 where that is not told. */
uint64_t starved_ns(pid_t pid);
/* For the end of a sentence about `waited_ns` without an answer, at whose beginning starved_ns()
 * was `before`: "; ..." when they have not run for most of it, else "". */
void starved_words(pid_t pid, uint64_t before, uint64_t waited_ns, char *ret, size_t size);

#endif
