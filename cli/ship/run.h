/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/ship/run.h - one run of `probing ship`: what sources.c, read_rows.c and ship.c share.
 *
 * One thread.
 */
#ifndef CLI_SHIP_RUN_H
#define CLI_SHIP_RUN_H

#include "cli/many/query_members.h"
#include "cli/ship/ship.h"

struct ship_run {
    const char *targets; /* as the user wrote them */
    const char *tables;  /* patterns with ',' between; NULL: as the destination says */
    bool once;
    bool fixed; /* with it: what comes from now on is not for this run */
    struct ship_destination to;
    struct ship_state state;
    struct members members; /* who is there now */
    struct ship_source *
        *source; /* [members.n] whose life each is; NULL: not known, or not wanted */
    uint32_t room;
    uint64_t halved;         /* ranges that were too long: less is asked for the next time */
    uint32_t unsent;         /* wanted tables that have rows which were not sent */
    uint64_t left_out;       /* those who were said not to be asked: a sum over their names */
    uint64_t not_found;      /* why nobody could be looked for, as it was said: a hash */
    struct ship_totals told; /* totals when they were said last */
    bool said_unknown;       /* words of --tables that name nothing */
    bool ahead;              /* more of a table was sent, says the state file, than it ever had */
};

/* ---- sources.c: who is there, and what each has ---- */

/* Look for all again: new ones, and what is left of those that have died. */
int sources_find(struct ship_run *r);
/* Ask all for their tables.  *ret_news: how many wanted tables have rows that were not sent. */
int sources_list(struct ship_run *r, uint32_t *ret_news);
/* Limit this run to what has been listed. */
void sources_fix(struct ship_run *r);
void sources_done(struct ship_run *r);

/* ---- read_rows.c: what is new, batch by batch ---- */

/* A table that was listed: has more of it been sent than it ever had?  That is said, and none of it
 * is new then. */
void rows_look_ahead(struct ship_run *r, struct ship_source *s, struct ship_table *t);
/* A range of each table that has news, to the destination.  -EAGAIN: the destination takes nothing
 * now.  *ret_moved: rows that went out or are known to be gone, and ranges that will
 * be asked for in another way; 0: to try again now changes nothing. */
int rows_send(struct ship_run *r, uint64_t *ret_moved);
/* Send what the living measure now. */
int metrics_send(struct ship_run *r);

#endif
