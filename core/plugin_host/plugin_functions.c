/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/plugin_functions.c - the calls of a plugin's functions that are made for the
 * plugin as a whole, each with a mark, by which the report of a crash names it.
 *
 * [control], but for fork.  What a function gives is not judged here.
 */
#include "core/plugin_host/internal.h"

int plugin_call_constructors(struct plugin *p, int file, const char *path, void **ret_handle)
{
    struct call_mark mark = {.plugin = p->name, .function = "constructor"};
    call_begin(&mark);
    int rc = image_map(file, p->name, path, ret_handle);
    call_end(&mark);
    return rc;
}

int plugin_call_init(struct plugin *p)
{
    struct call_mark mark = {.plugin = p->name, .function = "init"};
    call_begin(&mark);
    int rc = p->api.init(&p->face, &p->self);
    call_end(&mark);
    return rc;
}

int plugin_call_configure(struct plugin *p, const char *name, const char *value)
{
    struct call_mark mark = {.plugin = p->name, .function = "configure", .name = name};
    call_begin(&mark);
    int rc = p->api.configure ? p->api.configure(p->self, name, value) : 0;
    call_end(&mark);
    return rc;
}

int plugin_call_start(struct plugin *p)
{
    struct call_mark mark = {.plugin = p->name, .function = "start"};
    call_begin(&mark);
    int rc = p->api.start ? p->api.start(p->self) : 0;
    call_end(&mark);
    return rc;
}

int plugin_call_stop(struct plugin *p)
{
    struct call_mark mark = {.plugin = p->name, .function = "stop"};
    call_begin(&mark);
    int rc = p->api.stop ? p->api.stop(p->self) : 0;
    call_end(&mark);
    return rc;
}

void plugin_call_destroy(struct plugin *p)
{
    struct call_mark mark = {.plugin = p->name, .function = "destroy"};
    call_begin(&mark);
    p->api.destroy(p->self);
    call_end(&mark);
}

void plugin_call_fork(struct plugin *p, int phase)
{
    struct call_mark mark = {.plugin = p->name, .function = "fork"};
    call_begin(&mark);
    p->api.fork(p->self, phase);
    call_end(&mark);
}
