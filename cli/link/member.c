/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/link/member.c - a member of another machine as its relay's line says, checked and bounded.
 *
 * One thread.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/link/link.h"
#include "core/base/err.h"
#include "core/base/text.h"
#include "sdk/lib/arena.h"
#include "sdk/lib/json.h"

#define LINE_BYTES ((size_t)64 << 10)
#define PATH_BYTES 4096

/* They live as long as this process, or until it names all of them anew. */
static struct {
    struct link_member **list;
    uint32_t n;
} members;

static struct link_member *keep_member(void)
{
    struct link_member **list =
        realloc(members.list, (members.n + 1) * sizeof(struct link_member *));
    struct link_member *m = calloc(1, sizeof(*m));

    if (list != NULL)
        members.list = list;
    if (list == NULL || m == NULL) {
        free(m);
        return NULL;
    }
    return members.list[members.n++] = m;
}

void link_members_forget(void)
{
    for (uint32_t i = 0; i < members.n; i++) {
        free((char *)(uintptr_t)members.list[i]->what);
        free((char *)(uintptr_t)members.list[i]->directory);
        free(members.list[i]);
    }
    free(members.list);
    members.list = NULL;
    members.n = 0;
}

/* A pid, a time: nothing makes it anything else than a number. */
static int64_t read_number(const struct json *o, const char *key, int64_t most)
{
    int64_t n = json_int(o, key, LINK_UNKNOWN);

    return n >= 0 && n <= most ? n : LINK_UNKNOWN;
}

/* One line on a terminal, whatever was in it. */
static void read_text(const struct json *o, const char *key, char *ret, size_t size)
{
    (void)snprintf(ret, size, "%s", json_text(o, key, ""));
    for (char *at = ret; *at != '\0'; at++)
        *at = (unsigned char)*at < ' ' || *at == 127 ? ' ' : *at;
}

static int fill_member(const struct json *o, struct link_member *m)
{
    const char *what = json_text(o, "what", ""), *directory = json_text(o, "directory", "");

    if (what[0] == '\0' || what[0] == '-' || strlen(what) >= PATH_BYTES ||
        strlen(directory) >= PATH_BYTES)
        return -EBADMSG;
    m->what = strdup(what);
    m->directory = strdup(directory);
    if (m->what == NULL || m->directory == NULL)
        return -ENOMEM;
    m->pid = read_number(o, "pid", INT32_MAX);
    m->start_time = read_number(o, "start_time", INT64_MAX);
    m->alive = strcmp(json_text(o, "state", ""), "alive") == 0;
    m->dead = strcmp(json_text(o, "state", ""), "dead") == 0;
    m->clock_step_ns = json_int(o, "clock_step_ns", 0);
    m->has_clock = m->clock_step_ns == json_int(o, "clock_step_ns", 1); /* it is a number */
    read_text(o, "host", m->host_name, sizeof(m->host_name));
    read_text(o, "why", m->why, sizeof(m->why));
    return 0;
}

int link_member_read(uint32_t host, const char *line, size_t size, const struct link_member **ret)
{
    struct arena a;
    struct json *o = NULL;
    struct json_error bad;
    struct link_member *m = NULL;

    arena_init(&a, 1u << 20);
    int rc =
        size <= LINE_BYTES && json_read(&a, line, size, &o, &bad) == 0 && o->type == JSON_OBJECT
            ? 0
            : -EBADMSG;
    if (rc == 0)
        rc = (m = keep_member()) != NULL ? fill_member(o, m) : -ENOMEM;
    arena_done(&a);
    if (rc < 0)
        return err_set(rc, rc == -ENOMEM ? "no memory for a process of another machine"
                                         : "what its relay says of a process there is no answer "
                                           "of probing");
    m->host = host;
    *ret = m;
    return 0;
}

int link_member_place(const struct link_member *m, struct buf *ret)
{
    int rc = m->alive ? buf_addf(ret, "%lld %lld %s", (long long)m->pid, (long long)m->start_time,
                                 m->directory)
                      : buf_adds(ret, m->what);

    return rc < 0 ? err_set(-ENAMETOOLONG, "the name of a data directory is too long") : 0;
}

int link_member_from_place(const char *place, struct link_member *ret)
{
    char words[2][24];
    int at = 0;

    *ret = (struct link_member){.what = place, .directory = ""};
    if (sscanf(place, "%23[-0-9] %23[-0-9] %n", words[0], words[1], &at) == 2 && at > 0 &&
        place[at] == '/') {
        ret->alive = parse_i64(words[0], &ret->pid) == 0 &&
                     parse_i64(words[1], &ret->start_time) == 0 && ret->pid <= INT32_MAX;
        ret->directory = place + at;
    }
    bool names = at == 0 && place[0] != '-' && place[0] != '\0';
    return (ret->alive || names) && strlen(place) < LINK_PLACE_BYTES
               ? 0
               : err_set(-EBADMSG, "that is no place of a process");
}
