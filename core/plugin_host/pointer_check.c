/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/pointer_check.c - what a plugin hands over is looked at through the kernel
 * before it is used: a pointer that leads nowhere is an error, not the end of the process.
 *
 * Any thread.  For registrations, which are rare; appending and emitting rows take pointers as they
 * are.  Where the kernel refuses to look, pointers are believed.
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "core/base/text.h"
#include "core/plugin_file/elf_check.h"
#include "core/plugin_host/internal.h"
#include "sdk/lib/proc/memory.h"

#define TEXT_MAX 65536 /* bytes: a doc is one line */
#define STRUCT_MAX 4096u

/* How many bytes could be read, -1: that cannot be told. */
static int64_t copy_readable(const void *at, void *ret, size_t n)
{
    struct proc_memory own = PROC_MEMORY_OF(0);
    int64_t got = proc_own_memory((uint64_t)(uintptr_t)at, ret, n);

    if (got >= 0)
        return got;
    if (got != -EPERM && got != -ENOSYS)
        return 0;
    if (access("/proc/self/mem", R_OK) == -1)
        return -1;
    own.by_file = true;
    return (int64_t)proc_memory_read(&own, (uint64_t)(uintptr_t)at, ret, n);
}

size_t given_copy(const void *at, void *ret, size_t n)
{
    ssize_t got = at ? copy_readable(at, ret, n) : 0;
    if (got != -1)
        return (size_t)got;
    memcpy(ret, at, n);
    return n;
}

bool given_bytes(const void *at, size_t n)
{
    char bytes[256];

    while (n > 0) {
        size_t some = n < sizeof(bytes) ? n : sizeof(bytes);
        int64_t got = at ? copy_readable(at, bytes, some) : 0;
        if (got == -1)
            return true;
        if ((size_t)got != some)
            return false;
        at = (const char *)at + some;
        n -= some;
    }
    return true;
}

bool given_text(const char *text)
{
    char bytes[256];

    for (size_t done = 0; text && done < TEXT_MAX; done += sizeof(bytes)) {
        int64_t got =
            copy_readable(text + done, bytes, sizeof(bytes)); /* ends early at the last page */
        if (got == -1)
            return true;
        if (got > 0 && memchr(bytes, '\0', (size_t)got))
            return true;
        if ((size_t)got != sizeof(bytes))
            return false;
    }
    return false;
}

/* NULL is fine: "not given". */
static bool text_or_null(const char *text)
{
    return !text || given_text(text);
}

static bool code_or_null(uintptr_t fn)
{
    return fn == 0 || given_bytes((const void *)fn, 1);
}

int given_plugin(const struct probing_plugin *api)
{
    if (!text_or_null(api->name) || !text_or_null(api->version) || !text_or_null(api->doc))
        return err_set(-EFAULT, "its name, version or doc is at an address that cannot be read");
    if (!code_or_null((uintptr_t)api->init) || !code_or_null((uintptr_t)api->configure) ||
        !code_or_null((uintptr_t)api->start) || !code_or_null((uintptr_t)api->stop) ||
        !code_or_null((uintptr_t)api->fork) || !code_or_null((uintptr_t)api->destroy) ||
        !code_or_null((uintptr_t)api->extension))
        return err_set(-EFAULT, "one of its functions is at an address that cannot be read");
    if (!api->config)
        return 0;
    if (api->config_size < sizeof(*api->config) || api->config_size > STRUCT_MAX)
        return err_set(-EINVAL,
                       "config_size is %u, struct probing_config has %zu bytes; set .config_size",
                       api->config_size, sizeof(*api->config));
    for (uint32_t i = 0; i < STRUCT_MAX; i++) {
        const struct probing_config *c =
            (const void *)((const char *)api->config + (size_t)i * api->config_size);
        if (!given_bytes(c, sizeof(*c)))
            return err_set(-EFAULT,
                           "its settings cannot be read from the %uth on; does the table "
                           "end with a NULL name?",
                           i);
        if (!c->name)
            return 0;
        if (!given_text(c->name) || !text_or_null(c->value) || !text_or_null(c->doc))
            return err_set(-EFAULT, "setting %u has a text at an address that cannot be read", i);
    }
    return 0; /* too many: settings_check() says so */
}

int given_table(const struct probing_table_desc *d)
{
    if (!given_bytes(d, sizeof(d->size)) || d->size < sizeof(*d) || d->size > STRUCT_MAX ||
        !given_bytes(d, sizeof(*d)) || !d->name || !d->columns)
        return err_set(-EINVAL, "a table needs .size = sizeof(struct probing_table_desc), a name "
                                "and columns");
    if (!given_text(d->name) || !text_or_null(d->doc) || !text_or_null(d->tail_name) ||
        !code_or_null((uintptr_t)d->scan))
        return err_set(-EFAULT, "a table has a text or scan() at an address that cannot be read");
    if (d->n_columns > 64 || d->column_size > STRUCT_MAX)
        return err_set(-EINVAL,
                       "table %.80s: %u columns of %u bytes; 1 to 64 are possible, each "
                       "of sizeof(struct probing_column)",
                       d->name, d->n_columns, d->column_size);
    if (!given_bytes(d->columns, (size_t)d->n_columns * d->column_size))
        return err_set(-EFAULT, "table %.80s: its %u columns cannot be read", d->name,
                       d->n_columns);
    for (uint32_t i = 0; i < d->n_columns && d->column_size >= 2 * sizeof(void *); i++) {
        const struct probing_column *c =
            (const void *)((const char *)d->columns + (size_t)i * d->column_size);
        if (!text_or_null(c->name) || (d->column_size >= sizeof(*c) && !text_or_null(c->doc)))
            return err_set(-EFAULT,
                           "table %.80s: the name or doc of column %u is at an address "
                           "that cannot be read",
                           d->name, i);
    }
    return 0;
}

int given_command(const struct probing_command *c)
{
    if (!given_bytes(c, sizeof(c->size)) || c->size < sizeof(*c) || c->size > STRUCT_MAX ||
        !given_bytes(c, sizeof(*c)))
        return err_set(-EINVAL, "a command needs .size = sizeof(struct probing_command)");
    if (!text_or_null(c->name) || !text_or_null(c->usage) || !text_or_null(c->doc) ||
        !code_or_null((uintptr_t)c->run))
        return err_set(-EFAULT, "a command has a text or run() at an address that cannot be read");
    return 0;
}

int given_whole(struct plugin *p, const struct probing_plugin *api)
{
    const size_t size_1_0 = offsetof(struct probing_plugin, declares);
    if (api->size < size_1_0 || api->size > 65536)
        return plugin_refuse(p, "size", -ENOEXEC,
                             "its struct has %u bytes, in version 1.0 it has %zu; set .size = "
                             "sizeof(struct probing_plugin) and build it again",
                             api->size, size_1_0);
    if (!given_bytes(api, api->size < sizeof(*api) ? api->size : sizeof(*api)))
        return plugin_refuse(p, "symbol", -ENOEXEC, PLUGIN_SYMBOL " cannot be read");
    if (api->abi >> 16 != PROBING_ABI_MAJOR)
        return plugin_refuse(
            p, "abi", -ENOEXEC,
            "it was built for ABI %u.%u, this core has %u; use a plugin of this version",
            api->abi >> 16, api->abi & 0xffff, PROBING_ABI_MAJOR);
    if (api->min_minor > PROBING_ABI_MINOR)
        return plugin_refuse(p, "min_minor", -ENOEXEC,
                             "it needs ABI %u.%u, this core has %u.%u; use a newer "
                             "probing",
                             PROBING_ABI_MAJOR, api->min_minor, PROBING_ABI_MAJOR,
                             PROBING_ABI_MINOR);
    if (given_plugin(api) < 0)
        return plugin_refuse(p, "pointers", -EFAULT, "%s", err_text());
    if (!api->name || !text_is_name(api->name))
        return plugin_refuse(p, "name", -EINVAL,
                             "its name '%.80s' is not of the form [a-z][a-z0-9_]*",
                             api->name ? api->name : "(null)");
    if (strcmp(api->name, p->name) != 0)
        return plugin_refuse(p, "name", -EINVAL, "the file is plugin '%s'; load it by that name",
                             api->name);
    if (!api->init || !api->destroy)
        return plugin_refuse(p, "functions", -EINVAL, "init and destroy may not be NULL");
    if (api->config && settings_check(p->name, api->config, api->config_size) < 0)
        return plugin_refuse(p, "settings", -EINVAL, "%s", err_text());
    if (declared_take(p, api) < 0)
        return plugin_refuse(p, "declarations", -EINVAL, "%s", err_text());
    return 0;
}
