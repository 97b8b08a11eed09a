/* SPDX-License-Identifier: Apache-2.0
 *
 * core/guest/call_mark.h - which plugin's function the calling thread is inside of.
 *
 * The report of a crash names it, and some functions may only be called from inside of another.
 * A mark lies on the stack of whoever calls the plugin; the marks of a thread form a list, the
 * innermost first.  Any thread; they take no lock and allocate nothing.
 */
#ifndef CORE_GUEST_CALL_MARK_H
#define CORE_GUEST_CALL_MARK_H

struct call_mark {
    const char *plugin;   /* its name; stays at least as long as the mark */
    const char *function; /* "init", "every", "scan"; static */
    const char *name;     /* of the table, command, topic or setting; NULL: there is none */
    const void *object;   /* the struct probing_rows or probing_reply that it may use; NULL */
    const struct call_mark *outer;
};

void call_begin(struct call_mark *m);         /* fills in `outer`                       [signal] */
void call_end(const struct call_mark *m);     /* of the innermost one                   [signal] */
const struct call_mark *call_innermost(void); /* NULL: none                    [signal] */

#endif
