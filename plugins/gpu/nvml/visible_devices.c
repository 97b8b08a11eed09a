/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/gpu/nvml/visible_devices.c - which devices a process sees, by CUDA_VISIBLE_DEVICES.
 *
 * Any thread; no state.  The rules are CUDA's and, where its manual is silent, those that PyTorch
 * found (torch.cuda._parse_visible_devices): the list ends at its first wrong element, one that
 * comes twice makes it empty, "1gpu2" is 1.  UUIDs may be cut short where that names one device.
 */
#include "nvml/nvml_reader.h"

#define ELEMENTS_MAX GPU_DEVICES_MAX
#define ELEMENT_BYTES 128

/* The next element, without blanks around it; false: the list is over. */
static bool next_element(const char **at, char ret[ELEMENT_BYTES])
{
    const char *from = *at;
    if (from == NULL)
        return false;
    const char *comma = strchr(from, ',');
    size_t n = comma ? (size_t)(comma - from) : strlen(from);
    *at = comma ? comma + 1 : NULL;
    while (n > 0 && (*from == ' ' || *from == '\t'))
        from++, n--;
    while (n > 0 && (from[n - 1] == ' ' || from[n - 1] == '\t'))
        n--;
    (void)snprintf(ret, ELEMENT_BYTES, "%.*s", (int)(n < ELEMENT_BYTES ? n : ELEMENT_BYTES - 1),
                   from);
    return true;
}

/* The number at its begin; -1: none, or below 0. */
static int64_t number_of(const char *text)
{
    int64_t value = 0;
    if (*text == '+')
        text++;
    if (*text < '0' || *text > '9')
        return -1;
    for (; *text >= '0' && *text <= '9'; text++)
        value = value < 1000000 ? value * 10 + (*text - '0') : value;
    return value;
}

/* "MIG-GPU-<uuid>/<gpu instance>/<compute instance>", as drivers before 470 wrote it. */
static bool is_old_partition(const char *element, const struct gpu_device *d,
                             const struct gpu_device *whole)
{
    char name[ELEMENT_BYTES];
    (void)snprintf(name, sizeof(name), "MIG-%s/%llu/%llu", whole->uuid,
                   (unsigned long long)d->slots[0], (unsigned long long)d->slots[1]);
    return strcmp(element, name) == 0;
}

static int find_uuid(const char *element, const struct gpu_device *devices, uint32_t n)
{
    int found = -1;
    uint32_t whole = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct gpu_device *d = &devices[i];
        if (d->partition < 0)
            whole = i;
        if (strncmp(d->uuid, element, strlen(element)) != 0 &&
            !(d->partition >= 0 && is_old_partition(element, d, &devices[whole])))
            continue;
        if (found != -1)
            return -1; /* it names two */
        found = (int)i;
    }
    return found;
}

static int find_index(int64_t index, const struct gpu_device *devices, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (devices[i].partition < 0 && devices[i].index == index)
            return (int)i;
    return -1;
}

/* Without CUDA_DEVICE_ORDER=PCI_BUS_ID the fastest come first: which those are is only known where
 * all are the same. */
static bool order_known(const char *order, const struct gpu_device *devices, uint32_t n)
{
    const struct gpu_device *first = NULL;
    if (order && strcmp(order, "PCI_BUS_ID") == 0)
        return true;
    for (uint32_t i = 0; i < n; i++) {
        if (devices[i].partition >= 0)
            continue;
        if (first && strcmp(first->name, devices[i].name) != 0)
            return false;
        first = first ? first : &devices[i];
    }
    return true;
}

static void set_all(struct gpu_device *devices, uint32_t n, int32_t visible)
{
    for (uint32_t i = 0; i < n; i++) {
        devices[i].visible = visible;
        devices[i].ordinal = -1;
    }
}

/* Device i is named as a whole.  If it is partitioned, nothing says which of its partitions CUDA
 * takes. */
static void see_one(uint32_t i, int32_t ordinal, struct gpu_device *devices, uint32_t n)
{
    devices[i].visible = devices[i].partitioned ? -1 : 1;
    devices[i].ordinal = devices[i].partitioned ? -1 : ordinal;
    for (uint32_t k = i + 1; k < n && devices[k].partition >= 0; k++)
        devices[k].visible = -1;
}

/* No list: all devices.  If all are partitioned, CUDA takes one partition in all: the first. */
static void see_all(const char *order, struct gpu_device *devices, uint32_t n)
{
    int32_t ordinal = 0, partition = -1;
    bool known = order_known(order, devices, n);
    set_all(devices, n, 0);
    for (uint32_t i = 0; i < n; i++)
        if (devices[i].partition >= 0)
            partition = partition < 0 ? (int32_t)i : partition;
        else if (!devices[i].partitioned)
            see_one(i, known ? ordinal++ : -1, devices, n);
    if (partition >= 0 && ordinal > 0)
        set_all(devices, n, -1); /* some are partitioned, others not */
    else if (partition >= 0)
        devices[partition].visible = 1, devices[partition].ordinal = 0;
}

static void see_indices(const char *list, const char *order, struct gpu_device *devices, uint32_t n)
{
    char element[ELEMENT_BYTES];
    int64_t seen[ELEMENTS_MAX];
    uint32_t n_seen = 0;
    set_all(devices, n, 0);
    while (n_seen < ELEMENTS_MAX && next_element(&list, element)) {
        int64_t index = number_of(element);
        for (uint32_t i = 0; i < n_seen; i++)
            if (index >= 0 && seen[i] == index) {
                set_all(devices, n, 0);
                return;
            }
        int found = index >= 0 ? find_index(index, devices, n) : -1;
        if (found < 0)
            break;
        see_one((uint32_t)found, (int32_t)n_seen, devices, n);
        seen[n_seen++] = index;
    }
    if (n_seen > 0 && !order_known(order, devices, n))
        set_all(devices, n, -1);
}

static void see_uuids(const char *list, const char *prefix, struct gpu_device *devices, uint32_t n)
{
    char element[ELEMENT_BYTES];
    int32_t ordinal = 0;
    set_all(devices, n, 0);
    while (next_element(&list, element)) {
        if (strncmp(element, prefix, strlen(prefix)) != 0)
            break;
        int found = find_uuid(element, devices, n);
        if (found >= 0 && devices[found].visible != 0) {
            set_all(devices, n, 0);
            return;
        }
        if (found < 0)
            break;
        if (devices[found].partition < 0)
            see_one((uint32_t)found, ordinal, devices, n);
        else
            devices[found].visible = 1, devices[found].ordinal = ordinal;
        ordinal++;
    }
}

void cuda_visible(const char *list, const char *order, struct gpu_device *devices, uint32_t n)
{
    if (list == NULL)
        see_all(order, devices, n);
    else if (strncmp(list, "GPU-", 4) == 0)
        see_uuids(list, "GPU-", devices, n);
    else if (strncmp(list, "MIG-", 4) == 0)
        see_uuids(list, "MIG-", devices, n);
    else
        see_indices(list, order, devices, n);
}
