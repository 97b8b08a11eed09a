/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/ship/libcurl.c - see libcurl.h.
 */
#include "cli/ship/libcurl.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "core/base/err.h"

static struct libcurl library; /* loaded once, and for good */

static bool find_function(void *handle, const char *name, void *ret_function)
{
    void *at = dlsym(handle, name);

    memcpy(ret_function, &at, sizeof(at));
    return at != NULL;
}

static bool find_all(void *handle, struct libcurl *l)
{
    return find_function(handle, "curl_easy_init", &l->easy_init) &&
           find_function(handle, "curl_easy_setopt", &l->easy_setopt) &&
           find_function(handle, "curl_easy_perform", &l->easy_perform) &&
           find_function(handle, "curl_easy_getinfo", &l->easy_getinfo) &&
           find_function(handle, "curl_easy_cleanup", &l->easy_cleanup) &&
           find_function(handle, "curl_easy_strerror", &l->easy_strerror) &&
           find_function(handle, "curl_slist_append", &l->slist_append) &&
           find_function(handle, "curl_slist_free_all", &l->slist_free_all);
}

int libcurl_load(const struct libcurl **ret)
{
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};
    static bool loaded;

    for (size_t i = 0; !loaded && i < sizeof(names) / sizeof(names[0]); i++) {
        void *handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        loaded = handle != NULL && find_all(handle, &library);
    }
    *ret = &library;
    return loaded
               ? 0
               : err_set(-ENOPKG,
                         "no libcurl.so.4 is found here, and ship speaks HTTP by it: apt install "
                         "libcurl4, dnf install libcurl (parquet:FOLDER needs none)");
}
