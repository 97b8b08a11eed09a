/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/gpu/nvml/nvml_reader.c - NVIDIA's devices: find NVML, list devices, ask what they do.
 *
 * The watcher's thread only, which may hang in any of these calls with the driver.  A number that a
 * device does not have, this driver does not know or we may not ask is GPU_UNKNOWN.
 */
#include "nvml/nvml_reader.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include "lib/library_find.h"

#define PARTITIONS_MAX 16u /* of a device; today's have 7 */
#define ASKED_PROCESSES 256u

static const char *words_of(const struct nvml *n, int code)
{
    const char *said = n->f.error_text ? n->f.error_text(code) : NULL;
    return said ? said : "an error without words";
}

/* ---- find it ---- */

/* The first name that this driver has. */
static void *find_function(void *library, const char *names)
{
    char name[64];
    void *found = NULL;
    while (*names && !found) {
        size_t size = strcspn(names, " ");
        (void)snprintf(name, sizeof(name), "nvml%.*s", (int)size, names);
        found = dlsym(library, name);
        names += size + strspn(names + size, " ");
    }
    return found;
}

static void find_functions(void *library, struct nvml_functions *f)
{
    const struct {
        void *at; /* a pointer to a function */
        const char *names;
    } wanted[] = {
        {&f->init, "Init_v2 Init"},
        {&f->shutdown, "Shutdown"},
        {&f->device_count, "DeviceGetCount_v2 DeviceGetCount"},
        {&f->device, "DeviceGetHandleByIndex_v2 DeviceGetHandleByIndex"},
        {&f->uuid, "DeviceGetUUID"},
        {&f->name, "DeviceGetName"},
        {&f->error_text, "ErrorString"},
        {&f->driver_version, "SystemGetDriverVersion"},
        {&f->cuda_version, "SystemGetCudaDriverVersion_v2 SystemGetCudaDriverVersion"},
        {&f->pci, "DeviceGetPciInfo_v3"},
        {&f->minor, "DeviceGetMinorNumber"},
        {&f->capability, "DeviceGetCudaComputeCapability"},
        {&f->memory, "DeviceGetMemoryInfo"},
        {&f->memory_2, "DeviceGetMemoryInfo_v2"},
        {&f->utilization, "DeviceGetUtilizationRates"},
        {&f->power_mw, "DeviceGetPowerUsage"},
        {&f->power_limit_mw, "DeviceGetEnforcedPowerLimit"},
        {&f->energy_mj, "DeviceGetTotalEnergyConsumption"},
        {&f->temperature, "DeviceGetTemperature"},
        {&f->clock_mhz, "DeviceGetClockInfo"},
        {&f->clock_reasons,
         "DeviceGetCurrentClocksEventReasons DeviceGetCurrentClocksThrottleReasons"},
        {&f->ecc_errors, "DeviceGetTotalEccErrors"},
        {&f->bus_kib_a_second, "DeviceGetPcieThroughput"},
        {&f->fields, "DeviceGetFieldValues"},
        {&f->mig_mode, "DeviceGetMigMode"},
        {&f->mig_count, "DeviceGetMaxMigDeviceCount"},
        {&f->mig_device, "DeviceGetMigDeviceHandleByIndex"},
        {&f->gpu_instance, "DeviceGetGpuInstanceId"},
        {&f->compute_instance, "DeviceGetComputeInstanceId"},
        {&f->processes[0], "DeviceGetComputeRunningProcesses_v3 "
                           "DeviceGetComputeRunningProcesses_v2"},
        {&f->processes[1], "DeviceGetGraphicsRunningProcesses_v3 "
                           "DeviceGetGraphicsRunningProcesses_v2"},
        {&f->processes_1[0], "DeviceGetComputeRunningProcesses"},
        {&f->processes_1[1], "DeviceGetGraphicsRunningProcesses"},
    };
    for (size_t i = 0; i < PROBING_LENGTH(wanted); i++) {
        void *found = find_function(library, wanted[i].names);
        memcpy(wanted[i].at, &found, sizeof(found));
    }
}

/* The library stays mapped when the plugin goes: it may have put something into our thread that
 * runs when that ends, and the program may use it, too. */
static int find_library(struct nvml *n, char *why)
{
    char open[NVML_WHY_BYTES];
    void *library = library_find(NVML_LIBRARY, RTLD_NOW | RTLD_LOCAL, open, sizeof(open));
    if (!library && open[0]) {
        (void)snprintf(why, NVML_WHY_BYTES, "%s", open);
        return -ENOENT;
    }
    if (!library) {
        const char *said = dlerror();
        bool missing = !said || strstr(said, "No such file") != NULL;
        (void)snprintf(why, NVML_WHY_BYTES, "%.120s%s",
                       missing ? NVML_LIBRARY " is not here" : said,
                       missing ? ": no NVIDIA driver" : "");
        return -ENOENT;
    }
    find_functions(library, &n->f);
    if (!n->f.init || !n->f.shutdown || !n->f.device_count || !n->f.device || !n->f.uuid ||
        !n->f.name) {
        (void)snprintf(why, NVML_WHY_BYTES, "%s is not NVML: its first functions are missing",
                       NVML_LIBRARY);
        return -ENODEV;
    }
    n->found = true;
    return 0;
}

/* Names that others made: what is no printable ASCII is '?'. */
static void clean_name(char *text, size_t size)
{
    text[size - 1] = '\0';
    for (char *at = text; *at; at++)
        if (*at < ' ' || *at > '~')
            *at = '?';
}

int nvml_begin(struct nvml *n, char *why)
{
    if (n->ready)
        return 0;
    int rc = n->found ? 0 : find_library(n, why);
    if (rc == 0 && (rc = n->f.init()) != NVML_OK) {
        (void)snprintf(why, NVML_WHY_BYTES, "NVML does not begin: %.120s (%d)", words_of(n, rc),
                       rc);
        rc = -ENODEV;
    }
    if (rc < 0) {
        clean_name(why, NVML_WHY_BYTES);
        return rc;
    }
    n->ready = true;
    if (!n->f.driver_version || n->f.driver_version(n->driver, sizeof(n->driver)) != NVML_OK)
        n->driver[0] = '\0';
    if (!n->f.cuda_version || n->f.cuda_version(&n->cuda_version) != NVML_OK)
        n->cuda_version = 0;
    clean_name(n->driver, sizeof(n->driver));
    return 0;
}

void nvml_end(struct nvml *n)
{
    if (n->ready)
        (void)n->f.shutdown();
    n->ready = false;
    n->n = 0;
}

/* ---- who is there ---- */

static void name_device(struct nvml *n, struct nvml_device *handle, struct gpu_device *d)
{
    if (n->f.uuid(handle, d->uuid, sizeof(d->uuid)) != NVML_OK)
        d->uuid[0] = '\0';
    if (n->f.name(handle, d->name, sizeof(d->name)) != NVML_OK)
        d->name[0] = '\0';
    clean_name(d->uuid, sizeof(d->uuid));
    clean_name(d->name, sizeof(d->name));
}

/* "00000000:65:00.0" as the kernel and nvidia-smi write it. */
static void place_device(struct nvml *n, struct nvml_device *handle, struct gpu_device *d)
{
    struct nvml_pci pci = {.domain = 0};
    int32_t major = 0, minor = 0;
    uint32_t number = 0;
    if (n->f.pci && n->f.pci(handle, &pci) == NVML_OK) {
        (void)snprintf(d->bus_id, sizeof(d->bus_id), "%.31s", pci.bus_id);
        clean_name(d->bus_id, sizeof(d->bus_id));
    }
    if (n->f.capability && n->f.capability(handle, &major, &minor) == NVML_OK)
        (void)snprintf(d->capability, sizeof(d->capability), "%d.%d", (int)major, (int)minor);
    if (n->f.minor && n->f.minor(handle, &number) == NVML_OK)
        d->minor = number;
    if (n->f.power_limit_mw && n->f.power_limit_mw(handle, &number) == NVML_OK)
        d->limit_mw = number;
}

static void ask_memory(struct nvml *n, struct nvml_device *handle, uint64_t *ret_used,
                       uint64_t *ret_total, int *ret_error)
{
    struct nvml_memory_2 newer = {.version = NVML_MEMORY_2};
    struct nvml_memory older = {.total = 0};
    int rc = n->f.memory_2 ? n->f.memory_2(handle, &newer) : NVML_NOT_SUPPORTED;
    if (rc == NVML_OK) {
        *ret_used = newer.used;
        *ret_total = newer.total;
        return;
    }
    if (n->f.memory && rc != NVML_GPU_IS_LOST && rc != NVML_UNINITIALIZED)
        rc = n->f.memory(handle, &older);
    *ret_error = rc;
    if (rc == NVML_OK) {
        *ret_used = older.used;
        *ret_total = older.total;
    }
}

static struct gpu_device *add_device(struct nvml *n, struct nvml_device *handle,
                                     struct gpu_device *devices, uint32_t index)
{
    if (n->n >= GPU_DEVICES_MAX)
        return NULL;
    struct gpu_device *d = &devices[n->n];
    int ignored = 0;
    *d = (struct gpu_device){.index = index,
                             .partition = -1,
                             .visible = -1,
                             .ordinal = -1,
                             .total_bytes = GPU_UNKNOWN,
                             .minor = GPU_UNKNOWN,
                             .slots = {GPU_UNKNOWN, GPU_UNKNOWN},
                             .limit_mw = GPU_UNKNOWN,
                             .link_count = GPU_UNKNOWN};
    n->partitioned[n->n] = false;
    n->handles[n->n++] = handle;
    if (handle) {
        uint64_t used;
        name_device(n, handle, d);
        ask_memory(n, handle, &used, &d->total_bytes, &ignored);
    }
    return d;
}

static void add_partitions(struct nvml *n, struct nvml_device *handle, struct gpu_device *devices,
                           struct gpu_device *whole)
{
    uint32_t now = 0, later = 0, count = 0, slot = 0;
    if (!n->f.mig_mode || n->f.mig_mode(handle, &now, &later) != NVML_OK)
        return; /* it cannot be partitioned */
    whole->mode_known = true;
    whole->partitioned = now == 1;
    if (!whole->partitioned || !n->f.mig_count || !n->f.mig_device ||
        n->f.mig_count(handle, &count) != NVML_OK)
        return;
    for (uint32_t i = 0; i < count && i < PARTITIONS_MAX; i++) {
        struct nvml_device *partition = NULL;
        if (n->f.mig_device(handle, i, &partition) != NVML_OK || !partition)
            continue; /* that place is empty */
        struct gpu_device *d = add_device(n, partition, devices, whole->index);
        if (!d)
            return;
        n->partitioned[whole - devices] = true;
        d->partition = (int32_t)i;
        if (n->f.gpu_instance && n->f.gpu_instance(partition, &slot) == NVML_OK)
            d->slots[0] = slot;
        if (n->f.compute_instance && n->f.compute_instance(partition, &slot) == NVML_OK)
            d->slots[1] = slot;
    }
}

/* One field; GPU_UNKNOWN where there is none. */
static uint64_t field_value(const struct nvml_field *f)
{
    if (f->result != NVML_OK)
        return GPU_UNKNOWN;
    switch (f->type) {
    case NVML_DOUBLE:
        return f->value.f64 >= 0 && f->value.f64 < 9e18 ? (uint64_t)f->value.f64 : GPU_UNKNOWN;
    case NVML_U32:
        return f->value.u32;
    case NVML_ULONG:
    case NVML_U64:
        return f->value.u64;
    case NVML_I64:
        return f->value.i64 >= 0 ? (uint64_t)f->value.i64 : GPU_UNKNOWN;
    case NVML_I32:
        return f->value.i32 >= 0 ? (uint64_t)f->value.i32 : GPU_UNKNOWN;
    case NVML_U16:
        return f->value.u16;
    default: /* of a newer driver */
        return GPU_UNKNOWN;
    }
}

static void count_links(struct nvml *n, struct nvml_device *handle, struct gpu_device *d)
{
    struct nvml_field f = {.field = NVML_FIELD_LINK_COUNT, .result = NVML_UNKNOWN};
    if (n->f.fields && n->f.fields(handle, 1, &f) == NVML_OK)
        d->link_count = field_value(&f);
}

int nvml_list(struct nvml *n, struct gpu_device *devices, char *why)
{
    uint32_t count = 0;
    int rc = n->f.device_count(&count);
    n->n = 0;
    if (rc != NVML_OK) {
        (void)snprintf(why, NVML_WHY_BYTES, "NVML does not say how many devices there are: %.100s",
                       words_of(n, rc));
        if (rc == NVML_UNINITIALIZED)
            n->ready = false; /* somebody shut it down once too often */
        return -ENODEV;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct nvml_device *handle = NULL;
        rc = n->f.device(i, &handle);
        if (rc != NVML_OK)
            handle = NULL;
        if (rc == NVML_NO_PERMISSION)
            continue; /* another container's */
        struct gpu_device *d = add_device(n, handle, devices, i);
        if (!d)
            break;
        n->refused[d - devices] = rc;
        if (!handle)
            continue; /* it is lost, or so: a row says it */
        place_device(n, handle, d);
        count_links(n, handle, d);
        add_partitions(n, handle, devices, d);
    }
    return (int)n->n;
}

/* ---- what they do ---- */

/* Questions that every device should answer. */
struct asked {
    int questions, answers;
    int last; /* what was said in place of an answer; that it is gone outweighs all else */
};

static bool is_gone(int rc)
{
    return rc == NVML_GPU_IS_LOST || rc == NVML_GPU_NOT_FOUND || rc == NVML_RESET_REQUIRED;
}

static bool has_answered(struct asked *a, int rc)
{
    a->questions++;
    a->answers += rc == NVML_OK;
    a->last = rc == NVML_OK || is_gone(a->last) ? a->last : rc;
    return rc == NVML_OK;
}

static uint64_t ask_number(struct asked *a, struct nvml_device *handle,
                           int (*question)(struct nvml_device *, uint32_t *))
{
    uint32_t value = 0;
    return question && has_answered(a, question(handle, &value)) ? value : GPU_UNKNOWN;
}

static uint64_t ask_clock(const struct nvml *n, struct nvml_device *handle, uint32_t which)
{
    uint32_t value = 0;
    return n->f.clock_mhz && n->f.clock_mhz(handle, which, &value) == NVML_OK ? value : GPU_UNKNOWN;
}

static uint64_t ask_errors(const struct nvml *n, struct nvml_device *handle, uint32_t type)
{
    uint64_t value = 0;
    return n->f.ecc_errors && n->f.ecc_errors(handle, type, NVML_SINCE_DRIVER, &value) == NVML_OK
               ? value
               : GPU_UNKNOWN;
}

static uint64_t measure_bus(const struct nvml *n, struct nvml_device *handle, uint32_t direction)
{
    uint32_t kib = 0;
    return n->f.bus_kib_a_second && n->f.bus_kib_a_second(handle, direction, &kib) == NVML_OK
               ? (uint64_t)kib * 1024
               : GPU_UNKNOWN;
}

static void ask_links(struct nvml *n, struct nvml_device *handle, bool measure,
                      struct gpu_look *ret)
{
    struct nvml_field f[] = {{.field = NVML_FIELD_LINK_RX_KIB, .scope = NVML_SCOPE_ALL},
                             {.field = NVML_FIELD_LINK_TX_KIB, .scope = NVML_SCOPE_ALL},
                             {.field = NVML_FIELD_BUS_RX_BYTES},
                             {.field = NVML_FIELD_BUS_TX_BYTES}};
    uint64_t *const to[] = {&ret->link_rx_bytes, &ret->link_tx_bytes, &ret->bus_rx_bytes,
                            &ret->bus_tx_bytes};
    for (size_t i = 0; i < PROBING_LENGTH(f); i++)
        f[i].result = NVML_UNKNOWN;
    bool any = n->f.fields && n->f.fields(handle, (int32_t)PROBING_LENGTH(f), f) == NVML_OK;
    for (size_t i = 0; i < PROBING_LENGTH(f) && any; i++) {
        uint64_t value = field_value(&f[i]);
        uint64_t unit = i < 2 ? 1024 : 1;
        *to[i] = value != GPU_UNKNOWN && value < GPU_UNKNOWN / unit ? value * unit : GPU_UNKNOWN;
    }
    if (measure && ret->bus_rx_bytes == GPU_UNKNOWN) {
        ret->bus_rx_rate = measure_bus(n, handle, NVML_BUS_RX);
        ret->bus_tx_rate = measure_bus(n, handle, NVML_BUS_TX);
    }
}

/* ---- processes ---- */

/* Read a process's name on this machine as this process sees it; in a container the driver's
 * numbers may be others'. */
static void process_name(int64_t pid, char ret[16])
{
    char path[40];
    (void)snprintf(path, sizeof(path), "/proc/%lld/comm", (long long)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd == -1 ? 0 : read(fd, ret, 15);
    if (fd != -1)
        (void)close(fd);
    ret[got > 0 ? got : 0] = '\0';
    ret[strcspn(ret, "\n")] = '\0';
    clean_name(ret, 16);
}

static void add_process(struct nvml *n, uint32_t device, uint32_t pid, uint64_t used, bool graphics,
                        struct gpu_look *look, struct gpu_processes *all)
{
    look->processes = look->processes == GPU_UNKNOWN ? 1 : look->processes + 1;
    if ((int64_t)pid == n->own_pid && used != NVML_NOT_AVAILABLE)
        look->own_bytes = (look->own_bytes == GPU_UNKNOWN ? 0 : look->own_bytes) + used;
    if (all->n == GPU_PROCESSES_MAX) {
        all->left_out++;
        return;
    }
    struct gpu_process *p = &all->all[all->n++];
    *p = (struct gpu_process){
        .device = device, .pid = pid, .used_bytes = used, .graphics = graphics};
    process_name(pid, p->name);
}

static void ask_processes(struct nvml *n, uint32_t device, bool graphics, struct gpu_look *look,
                          struct gpu_processes *all)
{
    struct nvml_process_2 newer[ASKED_PROCESSES];
    struct nvml_process_1 older[ASKED_PROCESSES];
    uint32_t count = ASKED_PROCESSES;
    int rc = NVML_NOT_SUPPORTED;
    bool new_form = n->f.processes[graphics] != NULL;
    if (new_form)
        rc = n->f.processes[graphics](n->handles[device], &count, newer);
    else if (n->f.processes_1[graphics])
        rc = n->f.processes_1[graphics](n->handles[device], &count, older);
    if (rc == NVML_INSUFFICIENT_SIZE)
        all->left_out += count; /* none were written */
    if (rc != NVML_OK)
        return;
    look->processes = look->processes == GPU_UNKNOWN ? 0 : look->processes;
    for (uint32_t i = 0; i < count && i < ASKED_PROCESSES; i++)
        if (new_form)
            add_process(n, device, newer[i].pid, newer[i].used_bytes, graphics, look, all);
        else
            add_process(n, device, older[i].pid, older[i].used_bytes, graphics, look, all);
}

/* ---- a look ---- */

static void forget_look(struct gpu_look *l)
{
    *l = (struct gpu_look){.state = GPU_OK};
    uint64_t *const numbers[] = {
        &l->used_bytes,    &l->total_bytes,     &l->busy_pct,        &l->memory_busy_pct,
        &l->power_mw,      &l->energy_mj,       &l->temperature_c,   &l->sm_clock_mhz,
        &l->ecc_corrected, &l->ecc_uncorrected, &l->bus_rx_bytes,    &l->bus_tx_bytes,
        &l->bus_rx_rate,   &l->bus_tx_rate,     &l->link_rx_bytes,   &l->link_tx_bytes,
        &l->processes,     &l->own_bytes,       &l->memory_clock_mhz};
    for (size_t i = 0; i < PROBING_LENGTH(numbers); i++)
        *numbers[i] = GPU_UNKNOWN;
}

/* No answer at all, or a word that says that there will be none. */
static void judge_answers(const struct nvml *n, const struct asked *a, struct gpu_look *ret)
{
    if (is_gone(a->last))
        ret->state = a->last == NVML_RESET_REQUIRED ? GPU_RESET_REQUIRED : GPU_LOST;
    else if (a->questions > 0 && a->answers == 0 && a->last != NVML_NOT_SUPPORTED &&
             a->last != NVML_NO_PERMISSION)
        ret->state = GPU_FAILED;
    if (ret->state == GPU_FAILED)
        (void)snprintf(ret->error, sizeof(ret->error), "%.50s (%d)", words_of(n, a->last), a->last);
    clean_name(ret->error, sizeof(ret->error));
}

static void ask_rest(struct nvml *n, uint32_t i, bool measure, struct gpu_look *ret,
                     struct gpu_processes *processes)
{
    struct nvml_device *handle = n->handles[i];
    uint64_t value = 0;
    ret->sm_clock_mhz = ask_clock(n, handle, NVML_CLOCK_SM);
    ret->memory_clock_mhz = ask_clock(n, handle, NVML_CLOCK_MEMORY);
    if (n->f.energy_mj && n->f.energy_mj(handle, &value) == NVML_OK)
        ret->energy_mj = value;
    if (n->f.clock_reasons && n->f.clock_reasons(handle, &value) == NVML_OK)
        nvml_reason_words(value, ret->throttle, sizeof(ret->throttle));
    ret->ecc_corrected = ask_errors(n, handle, NVML_CORRECTED);
    ret->ecc_uncorrected = ask_errors(n, handle, NVML_UNCORRECTED);
    ask_links(n, handle, measure, ret);
    if (n->partitioned[i])
        return;
    ask_processes(n, i, /* graphics= */ false, ret, processes);
    ask_processes(n, i, /* graphics= */ true, ret, processes);
}

int nvml_look(struct nvml *n, uint32_t i, bool measure_bus_too, struct gpu_look *ret,
              struct gpu_processes *processes)
{
    struct asked a = {.questions = 0, .last = NVML_OK};
    struct nvml_utilization busy = {.gpu = 0};
    struct nvml_device *handle = n->handles[i];
    int rc = NVML_OK;
    uint32_t celsius = 0;
    forget_look(ret);
    ret->ns = n->host->now();
    if (!handle) {
        (void)has_answered(&a, n->refused[i]);
        judge_answers(n, &a, ret);
        return 0;
    }
    ask_memory(n, handle, &ret->used_bytes, &ret->total_bytes, &rc);
    (void)has_answered(&a, rc);
    if (n->f.utilization && has_answered(&a, n->f.utilization(handle, &busy))) {
        ret->busy_pct = busy.gpu;
        ret->memory_busy_pct = busy.memory;
    }
    ret->power_mw = ask_number(&a, handle, n->f.power_mw);
    if (n->f.temperature && has_answered(&a, n->f.temperature(handle, 0, &celsius)))
        ret->temperature_c = celsius;
    judge_answers(n, &a, ret);
    if (a.answers == 0 && a.last == NVML_UNINITIALIZED) {
        n->ready = false;
        return -ENODEV;
    }
    if (ret->state == GPU_OK)
        ask_rest(n, i, measure_bus_too, ret, processes);
    return 0;
}
