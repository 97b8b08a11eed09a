/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/usage/memory_limit.c - the files of memory cgroups.
 *
 * Any thread, no state.  What cannot be read is not known, and never a limit.
 */
#include "memory_limit.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/number.h"
#include "lib/proc/lines.h"
#include "lib/proc/proc_file.h"

#define NEVER_REACHED (UINT64_C(1) << 60) /* how version 1 writes "no limit" */
#define FILE_BYTES (PROC_CGROUP_BYTES + 64)

struct files {
    const char *limit, *used, *inactive, *active, *kills;
};

static const struct files *files_of(uint32_t version)
{
    static const struct files all[] = {
        {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ",
         "total_active_file ", "memory.oom_control"},
        {"memory.max", "memory.current", "inactive_file ", "active_file ", "memory.events"}};
    return &all[version - 1];
}

static uint64_t number_in(const char *folder, const char *name, const char *key)
{
    char path[FILE_BYTES];
    uint64_t n;
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    return proc_number_in(path, key, &n) ? n : CGROUP_UNKNOWN; /* else "max" */
}

static bool is_there(const char *folder, const char *name)
{
    char path[FILE_BYTES];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    return access(path, R_OK) == 0;
}

static bool find_in(pid_t pid, const char *controller, uint32_t version, struct cgroup *ret)
{
    /* The topmost of version 2 has no memory.current. */
    const char *name = version == 1 ? "memory.usage_in_bytes" : "memory.stat";
    ret->version = version;
    return proc_cgroup_folder(pid, controller, &ret->own) && is_there(ret->own.path, name);
}

void cgroup_find(pid_t pid, struct cgroup *ret)
{
    if (!find_in(pid, "memory", 1, ret) && !find_in(pid, "", 2, ret))
        *ret = (struct cgroup){.version = 0};
}

/* Pages of files are taken back before anybody is killed. */
static uint64_t used_of(const char *folder, const struct files *f)
{
    uint64_t used = number_in(folder, f->used, "");
    uint64_t inactive = number_in(folder, "memory.stat", f->inactive);
    uint64_t active = number_in(folder, "memory.stat", f->active);
    uint64_t back =
        (inactive != CGROUP_UNKNOWN ? inactive : 0) + (active != CGROUP_UNKNOWN ? active : 0);
    return used == CGROUP_UNKNOWN ? used : used > back ? used - back : 0;
}

/* The group, or one around it, that has the least left. */
static void read_limit(const struct cgroup *g, struct cgroup_now *ret)
{
    const struct files *f = files_of(g->version);
    struct proc_cgroup_folder at = g->own;
    uint64_t least = CGROUP_UNKNOWN;
    do {
        uint64_t limit = number_in(at.path, f->limit, "");
        uint64_t used = limit < NEVER_REACHED ? used_of(at.path, f) : CGROUP_UNKNOWN;
        uint64_t left = limit > used ? limit - used : 0;
        if (used != CGROUP_UNKNOWN && left < least) {
            least = left;
            ret->limit = limit;
            ret->used = used;
            memcpy(ret->limit_at, at.path, sizeof(at.path));
        }
    } while (proc_cgroup_parent(&at));
}

/* "some avg10=0.00 avg60=..." */
static double pressure_of(const char *text, const char *kind)
{
    char key[32];
    double value;
    (void)snprintf(key, sizeof(key), "%s avg10=", kind);
    const char *found = strstr(text, key);
    const char *at = found ? found + strlen(key) : "";
    /* Not sscanf(): it takes the decimal point of the program's locale. */
    return number_f64(at, strspn(at, "0123456789."), &value) == 0 ? value : (double)NAN;
}

static void read_pressure(const struct cgroup *g, struct cgroup_now *ret)
{
    char path[FILE_BYTES], text[512];
    (void)snprintf(path, sizeof(path), "%s/memory.pressure", g->own.path);
    if ((g->version != 2 || proc_read_path(path, text, sizeof(text)) <= 0) &&
        proc_read_path("/proc/pressure/memory", text, sizeof(text)) <= 0)
        return;
    ret->some_avg10 = pressure_of(text, "some");
    ret->full_avg10 = pressure_of(text, "full");
}

void cgroup_read(const struct cgroup *g, struct cgroup_now *ret)
{
    *ret = (struct cgroup_now){.limit = CGROUP_UNKNOWN,
                               .used = CGROUP_UNKNOWN,
                               .oom_kills = CGROUP_UNKNOWN,
                               .some_avg10 = (double)NAN,
                               .full_avg10 = (double)NAN};
    if (g->version) {
        read_limit(g, ret);
        ret->oom_kills = number_in(g->own.path, files_of(g->version)->kills, "oom_kill ");
    }
    read_pressure(g, ret);
}
