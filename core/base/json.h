/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/json.h - JSON of the library below us, with what is wrong as this thread's reason.
 */
#ifndef CORE_BASE_JSON_H
#define CORE_BASE_JSON_H

#include <errno.h>

#include "core/base/err.h"
#include "sdk/lib/json.h"

/* json_read() with err_set() done. */
static inline int json_parse(struct arena *a, const char *text, size_t size, struct json **ret)
{
    struct json_error e;
    int rc = json_read(a, text, size, ret, &e);
    if (rc == -ENOMEM)
        return err_set(rc, "no memory for JSON at byte %zu", e.at);
    return rc < 0 ? err_set(rc, "bad JSON at byte %zu: %s", e.at, e.what) : 0;
}

#endif
