/* SPDX-License-Identifier: Apache-2.0
 *
 * core/guest/loaded_name.c - the name in the loader's list (glibc's struct link_map), in its place.
 */
#include "core/guest/loaded_name.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

void loaded_name_forget(const void *code)
{
    struct link_map *map = NULL;
    Dl_info info;
    if (dladdr1(code, &info, (void **)&map, RTLD_DL_LINKMAP) == 0 || !map || !map->l_name)
        return;
    /* One byte: who reads it just now sees the old name or none. */
    if (strncmp(map->l_name, "/proc/", 6) == 0)
        map->l_name[0] = '\0';
}
