/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/exec/session.h - a client's Python, or a tool's, as a job; session.py runs it.
 *
 * [worker] makes a job, hands it to the runner and takes the output.
 */
#ifndef PYTHON_EXEC_SESSION_H
#define PYTHON_EXEC_SESSION_H

#include "internal.h"

#define SESSION_OUTPUT (256u << 10) /* bytes that wait for the client at most */
#define SESSION_REFUSED 3           /* a job's result: the reason stands in session_reason() */

/* mode: of session.py's run(); client: it is a client's code, not ours.  NULL: no memory. */
struct runner_job *session_new(struct plugin *p, const char *mode, const char *code, bool client);
/* One that was never handed over. */
void session_free(struct runner_job *job);
/* Take what waits, SESSION_OUTPUT bytes at most: how many. */
size_t session_take(struct runner_job *job, char *copy);
/* Is there something to take?  With the runner's lock. */
bool session_has(const struct runner_job *job);
/* The reason of a refusal, or of -EIO: our own Python does not run; "": none.  When it is done. */
const char *session_reason(const struct runner_job *job);

#endif
