/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/proc/cgroup.c - /proc/PID/cgroup says which group, mountinfo where it can be seen.
 */
#include "sdk/lib/proc/cgroup.h"

#include <stdio.h>
#include <string.h>

#include "sdk/lib/proc/lines.h"
#include "sdk/lib/proc/proc_file.h"
#include "sdk/lib/proc/task.h"

/* \040 and the like, in place, as the kernel writes blanks and newlines in mountinfo. */
static void unescape_octal(char *text)
{
    char *to = text;
    for (const char *at = text; *at; to++) {
        bool octal = at[0] == '\\' && at[1] >= '0' && at[1] <= '3' && at[2] >= '0' &&
                     at[2] <= '7' && at[3] >= '0' && at[3] <= '7';
        *to = octal ? (char)((at[1] - '0') * 64 + (at[2] - '0') * 8 + (at[3] - '0')) : *at;
        at += octal ? 4 : 1;
    }
    *to = '\0';
}

static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, word, n) == 0 && (at[n] == ',' || at[n] == '\0'))
            return true;
    }
    return false;
}

/* One line of mountinfo: "36 35 98:0 ROOT POINT options - TYPE source SUPER".  Changes it. */
static bool parse_mount(char *line, const char *controller, char **ret_root, char **ret_point)
{
    char *fields[6], *at = line, *end = strstr(line, " - ");
    if (!end)
        return false;
    *end = '\0';
    for (uint32_t i = 0; i < 6; i++) {
        fields[i] = at;
        at = strchr(at, ' ');
        if (!at && i < 5)
            return false;
        if (at)
            *at++ = '\0';
    }
    char *type = end + 3, *source = strchr(type, ' '), *super;
    if (!source)
        return false;
    *source++ = '\0';
    super = strchr(source, ' ');
    bool second = strcmp(type, "cgroup2") == 0;
    if (controller[0] == '\0'
            ? !second
            : strcmp(type, "cgroup") != 0 || !super || !has_word(super + 1, controller))
        return false;
    unescape_octal(fields[3]);
    unescape_octal(fields[4]);
    *ret_root = fields[3];
    *ret_point = fields[4];
    return true;
}

static bool has_dotdot(const char *path)
{
    for (const char *at = path; (at = strstr(at, "..")) != NULL; at += 2)
        if ((at == path || at[-1] == '/') && (at[2] == '/' || at[2] == '\0'))
            return true;
    return false;
}

/* The group as the mount shows it: its root is left out.  NULL: it is not below. */
static const char *path_below(const char *group, const char *root)
{
    size_t n = strcmp(root, "/") == 0 ? 0 : strlen(root);
    return strncmp(group, root, n) == 0 && (group[n] == '/' || group[n] == '\0') ? group + n : NULL;
}

static bool put_path(const char *point, const char *rest, struct proc_cgroup_folder *ret)
{
    size_t at = strlen(point), more = strlen(rest);
    if (at + more >= sizeof(ret->path))
        return false;
    memcpy(ret->path, point, at);
    memcpy(ret->path + at, rest, more + 1);
    ret->point = at;
    return true;
}

bool proc_cgroup_in_mounts(const char *mounts, const char *group, const char *controller,
                           struct proc_cgroup_folder *ret)
{
    char room[8192], *root, *point;
    const char *rest = NULL;
    struct proc_lines l;
    size_t n;
    bool found = false;
    ret->path[0] = '\0';
    if (has_dotdot(group) || proc_lines_open(&l, mounts, room, sizeof(room)) < 0)
        return false;
    for (char *line; !rest && (line = proc_lines_next(&l, &n)) != NULL;) {
        if (l.cut || !parse_mount(line, controller, &root, &point))
            continue;
        rest = path_below(group, root);
        if (rest || !found) /* the first one will do where none shows it */
            found = put_path(point, rest && strcmp(rest, "/") != 0 ? rest : "", ret);
    }
    proc_lines_close(&l);
    if (!found)
        ret->path[0] = '\0';
    return found;
}

bool proc_cgroup_folder(pid_t pid, const char *controller, struct proc_cgroup_folder *ret)
{
    char group[PROC_CGROUP_BYTES];
    ret->path[0] = '\0';
    return proc_cgroup(pid, controller, group, sizeof(group)) &&
           proc_cgroup_in_mounts("/proc/self/mountinfo", group, controller, ret);
}

/* freezer.state of version 1, cgroup.events of version 2: each tells of groups around it, too. */
static bool group_is_frozen(pid_t pid, const char *controller, const char *file, const char *says)
{
    struct proc_cgroup_folder at;
    char path[PROC_CGROUP_BYTES + 32], text[256];
    if (!proc_cgroup_folder(pid, controller, &at))
        return false;
    (void)snprintf(path, sizeof(path), "%s/%s", at.path, file);
    return proc_read_path(path, text, sizeof(text)) > 0 && strstr(text, says) != NULL;
}

/* The place where its first thread sleeps in the kernel tells it at once, also for groups that are
 * not mounted here.  Linux 5.15, and a reader without the right, have "0"; since 6.1 version 1
 * leaves some threads where they slept. */
bool proc_is_frozen(pid_t pid)
{
    struct proc_stat s;
    char where[64];
    if (proc_stat_of(pid, 0, &s) < 0 || (s.state != 'S' && s.state != 'D'))
        return false;
    bool said = proc_read(pid, 0, "wchan", where, sizeof(where)) > 0 && where[0] != '0';
    if (said && (strcmp(where, "__refrigerator") == 0 || strcmp(where, "do_freezer_trap") == 0 ||
                 strcmp(where, "get_signal") == 0))
        return true;
    if (said && s.state == 'S')
        return false;
    return group_is_frozen(pid, "", "cgroup.events", "frozen 1") ||
           group_is_frozen(pid, "freezer", "freezer.state", "FROZEN");
}

bool proc_cgroup_parent(struct proc_cgroup_folder *f)
{
    char *slash = strrchr(f->path, '/');
    if (strlen(f->path) <= f->point || !slash || (size_t)(slash - f->path) < f->point)
        return false;
    *slash = '\0';
    return true;
}
