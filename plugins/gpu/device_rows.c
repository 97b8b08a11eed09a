/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/gpu/device_rows.c - the tables of devices and their rows: what they do at each look
 * (stored), who they are and which processes use them (computed, of the newest look).
 *
 * device_row() on the watcher's thread; scan functions on workers, from a copy of what that knows.
 */
#include "device_rows.h"

#include <unistd.h>

/* ---- cells ---- */

static union probing_cell count_cell(uint64_t value)
{
    return probing_i64(value <= INT64_MAX ? (int64_t)value : PROBING_NULL_I64);
}

static union probing_cell number_cell(uint64_t value, double unit)
{
    return value == GPU_UNKNOWN ? probing_null(PROBING_F64) : probing_f64((double)value / unit);
}

static union probing_cell share_cell(uint64_t part, uint64_t whole)
{
    return part == GPU_UNKNOWN || whole == GPU_UNKNOWN || whole == 0
               ? probing_null(PROBING_F64)
               : probing_f64(100.0 * (double)part / (double)whole);
}

static bool known_both(uint64_t before, uint64_t now)
{
    return before != GPU_UNKNOWN && now != GPU_UNKNOWN && now >= before;
}

/* A second, from a counter, or else as it was measured; NULL where the counter has begun again. */
static union probing_cell rate_cell(uint64_t before, uint64_t now, uint64_t wall_ns,
                                    uint64_t measured)
{
    if (wall_ns > 0 && known_both(before, now))
        return probing_f64((double)(now - before) * 1e9 / (double)wall_ns);
    return number_cell(measured, 1);
}

static union probing_cell flag_cell(int32_t value)
{
    return value < 0 ? probing_null(PROBING_I64) : probing_i64(value);
}

static const char *state_words(const struct gpu_look *l)
{
    switch (l->state) {
    case GPU_OK:
        return "ok";
    case GPU_LOST:
        return "lost";
    case GPU_RESET_REQUIRED:
        return "reset required";
    case GPU_FAILED:
        break;
    }
    return l->error;
}

/* ---- gpu.utilization ---- */

static const struct probing_column utilization[] = {
    PROBING_I64_COLUMN("device_id", PROBING_PLAIN, "index in gpu.devices"),
    PROBING_STR_COLUMN("state", "ok, lost (off the bus), reset required, or the driver's error"),
    PROBING_I64_COLUMN("wall_ns", PROBING_NS, "since the device's row before; NULL: the first"),
    PROBING_F64_COLUMN("gpu_util_pct", PROBING_PERCENT,
                       "of the last sample period (1/6 to 1 s) in which a kernel ran; not how "
                       "much of the device it used"),
    PROBING_F64_COLUMN("mem_util_pct", PROBING_PERCENT,
                       "likewise, in which device memory was read or written"),
    PROBING_I64_COLUMN("used_bytes", PROBING_BYTES, "device memory in use, by all processes"),
    PROBING_I64_COLUMN("total_bytes", PROBING_BYTES, "device memory"),
    PROBING_F64_COLUMN("mem_used_pct", PROBING_PERCENT, "used_bytes of total_bytes"),
    PROBING_I64_COLUMN("process_bytes", PROBING_BYTES,
                       "device memory that this process uses; NULL: none, or the driver does not "
                       "see it under this number, as in a container"),
    PROBING_I64_COLUMN("processes", PROBING_COUNT,
                       "that use the device; NULL: not known, or it is partitioned"),
    PROBING_F64_COLUMN("power_w", PROBING_PLAIN, "watts"),
    PROBING_F64_COLUMN("energy_j", PROBING_PLAIN, "joules since the driver was loaded"),
    PROBING_F64_COLUMN("temperature_c", PROBING_PLAIN, "degrees Celsius of the chip"),
    PROBING_I64_COLUMN("sm_clock_mhz", PROBING_PLAIN, "clock of the processors"),
    PROBING_I64_COLUMN("mem_clock_mhz", PROBING_PLAIN, "clock of the memory"),
    PROBING_STR_COLUMN("throttle_reasons",
                       "why clocks are not at their highest: none; idle, power cap, thermal, "
                       "hardware slowdown, ...; with ', ' between"),
    PROBING_I64_COLUMN("ecc_corrected", PROBING_COUNT,
                       "memory errors that were corrected, since the driver was loaded"),
    PROBING_I64_COLUMN("ecc_uncorrected", PROBING_COUNT, "likewise, that were not"),
    PROBING_F64_COLUMN("pcie_rx_bytes_per_sec", PROBING_BYTES,
                       "bytes a second to the device; NULL between measurements on older devices"),
    PROBING_F64_COLUMN("pcie_tx_bytes_per_sec", PROBING_BYTES, "likewise, from it"),
    PROBING_F64_COLUMN("nvlink_rx_bytes_per_sec", PROBING_BYTES,
                       "bytes a second that came by all NVLinks"),
    PROBING_F64_COLUMN("nvlink_tx_bytes_per_sec", PROBING_BYTES, "likewise, that went"),
};

static const struct probing_table_desc utilization_table =
    PROBING_TABLE("gpu.utilization", utilization, "what each GPU does, each gpu.interval");

static const struct probing_column partitions[] = {
    PROBING_I64_COLUMN("device_id", PROBING_PLAIN, "index in gpu.devices"),
    PROBING_I64_COLUMN("partition", PROBING_PLAIN, "of the device"),
    PROBING_STR_COLUMN("state", "as in gpu.utilization"),
    PROBING_I64_COLUMN("used_bytes", PROBING_BYTES, "its memory in use, by all processes"),
    PROBING_I64_COLUMN("total_bytes", PROBING_BYTES, "its memory"),
    PROBING_F64_COLUMN("mem_used_pct", PROBING_PERCENT, "used_bytes of total_bytes"),
    PROBING_I64_COLUMN("process_bytes", PROBING_BYTES, "of that this process uses"),
    PROBING_I64_COLUMN("processes", PROBING_COUNT, "that use it"),
};

static const struct probing_table_desc partition_table = PROBING_TABLE(
    "gpu.partition_utilization", partitions,
    "memory of each partition (MIG instance) of GPUs; how busy it is, NVML does not know");

void device_row(struct device_tables *t, const struct gpu_device *d, const struct gpu_look *before,
                const struct gpu_look *now)
{
    const struct probing_host *h = t->host;
    uint64_t state = probing_intern_text(h, state_words(now));
    uint64_t total = now->total_bytes;
    uint64_t wall = before->ns && now->ns > before->ns ? now->ns - before->ns : 0;
    if (d->partition >= 0) {
        const union probing_cell cells[] = {
            probing_i64(d->index),      probing_i64(d->partition),
            probing_id(state),          count_cell(now->used_bytes),
            count_cell(total),          share_cell(now->used_bytes, total),
            count_cell(now->own_bytes), count_cell(now->processes)};
        (void)h->append(t->partitions, now->ns, cells, PROBING_LENGTH(cells), NULL, 0);
        return;
    }
    uint64_t throttle = now->throttle[0] ? probing_intern_text(h, now->throttle) : PROBING_NULL_ID;
    const union probing_cell cells[] = {
        probing_i64(d->index),
        probing_id(state),
        wall ? count_cell(wall) : probing_null(PROBING_I64),
        number_cell(now->busy_pct, 1),
        number_cell(now->memory_busy_pct, 1),
        count_cell(now->used_bytes),
        count_cell(total),
        share_cell(now->used_bytes, total),
        count_cell(now->own_bytes),
        count_cell(now->processes),
        number_cell(now->power_mw, 1e3),
        number_cell(now->energy_mj, 1e3),
        number_cell(now->temperature_c, 1),
        count_cell(now->sm_clock_mhz),
        count_cell(now->memory_clock_mhz),
        probing_id(throttle),
        count_cell(now->ecc_corrected),
        count_cell(now->ecc_uncorrected),
        rate_cell(before->bus_rx_bytes, now->bus_rx_bytes, wall, now->bus_rx_rate),
        rate_cell(before->bus_tx_bytes, now->bus_tx_bytes, wall, now->bus_tx_rate),
        rate_cell(before->link_rx_bytes, now->link_rx_bytes, wall, GPU_UNKNOWN),
        rate_cell(before->link_tx_bytes, now->link_tx_bytes, wall, GPU_UNKNOWN)};
    (void)h->append(t->utilization, now->ns, cells, PROBING_LENGTH(cells), NULL, 0);
}

/* ---- gpu.devices ---- */

static const struct probing_column devices[] = {
    PROBING_I64_COLUMN("index", PROBING_PLAIN, "as the driver and nvidia-smi count"),
    PROBING_I64_COLUMN("partition", PROBING_PLAIN,
                       "of a partition (MIG instance): its number on the device; NULL: a device"),
    PROBING_STR_COLUMN("uuid", "GPU-... or MIG-..."),
    PROBING_STR_COLUMN("name", "of the product"),
    PROBING_STR_COLUMN("state", "as in gpu.utilization; not answering: a question has been under "
                                "way for seconds"),
    PROBING_I64_COLUMN("total_bytes", PROBING_BYTES, "device memory"),
    PROBING_I64_COLUMN("used_bytes", PROBING_BYTES, "of that in use, at the last look"),
    PROBING_F64_COLUMN("gpu_util_pct", PROBING_PERCENT, "as in gpu.utilization, at the last look"),
    PROBING_I64_COLUMN("visible", PROBING_PLAIN,
                       "1: this process sees it, by CUDA_VISIBLE_DEVICES as it is now; NULL: that "
                       "cannot be told"),
    PROBING_I64_COLUMN("ordinal", PROBING_PLAIN,
                       "this process's own number for it, as in cuda:0; NULL: it has none, or "
                       "that cannot be told"),
    PROBING_STR_COLUMN("pci_bus_id", "domain:bus:device.function"),
    PROBING_I64_COLUMN("minor", PROBING_PLAIN, "of its file: /dev/nvidia<minor>"),
    PROBING_STR_COLUMN("compute_capability", "9.0"),
    PROBING_STR_COLUMN("partition_mode", "mig: it is partitioned; off; NULL: it cannot be"),
    PROBING_I64_COLUMN("gpu_instance", PROBING_PLAIN, "of a partition"),
    PROBING_I64_COLUMN("compute_instance", PROBING_PLAIN, "of a partition"),
    PROBING_F64_COLUMN("power_limit_w", PROBING_PLAIN, "watts that it may take"),
    PROBING_I64_COLUMN("nvlinks", PROBING_COUNT, "links to other devices"),
    PROBING_STR_COLUMN("driver_version", "of the kernel's driver"),
    PROBING_STR_COLUMN("cuda_version", "the newest that the driver can"),
    PROBING_STR_COLUMN("vendor", "NVIDIA"),
};

static const char *text_or_null(const char *from)
{
    return from[0] ? from : NULL;
}

/* Give the device's state: "not answering" if its question has been under way for long. */
static const char *state_now(const struct known *k, uint32_t i, uint64_t now)
{
    bool slow = k->asking_ns && now - k->asking_ns >= WATCHER_SLOW_NS;
    if (slow && (k->asking == i || k->asking >= k->n))
        return "not answering";
    return k->looks_of[i].ns ? state_words(&k->looks_of[i]) : NULL;
}

static int emit_device(const struct probing_host *h, const struct known *k, uint32_t i,
                       struct probing_rows *out)
{
    const struct gpu_device *d = &k->devices[i];
    const struct gpu_look *l = &k->looks_of[i];
    char cuda[24] = "";
    if (k->cuda_version > 0)
        (void)snprintf(cuda, sizeof(cuda), "%d.%d", (int)(k->cuda_version / 1000),
                       (int)(k->cuda_version % 1000 / 10));
    const union probing_cell cells[] = {
        probing_i64(d->index),
        flag_cell(d->partition),
        probing_str(text_or_null(d->uuid)),
        probing_str(text_or_null(d->name)),
        probing_str(state_now(k, i, h->now())),
        count_cell(d->total_bytes),
        l->ns ? count_cell(l->used_bytes) : probing_null(PROBING_I64),
        l->ns ? number_cell(l->busy_pct, 1) : probing_null(PROBING_F64),
        flag_cell(d->visible),
        flag_cell(d->ordinal),
        probing_str(text_or_null(d->bus_id)),
        count_cell(d->minor),
        probing_str(text_or_null(d->capability)),
        probing_str(!d->mode_known   ? NULL
                    : d->partitioned ? "mig"
                                     : "off"),
        count_cell(d->slots[0]),
        count_cell(d->slots[1]),
        number_cell(d->limit_mw, 1e3),
        count_cell(d->link_count),
        probing_str(text_or_null(k->driver)),
        probing_str(text_or_null(cuda)),
        probing_str(text_or_null(k->maker))};
    return h->emit(out, cells, PROBING_LENGTH(cells));
}

/* As soon as the first look has been: whoever loads the plugin and asks at once gets an answer. */
static struct known *known_soon(void *self)
{
    const struct probing_host *h = plugin_host(self);
    struct known *k = watcher_known(plugin_watcher(self));
    for (uint64_t begun = h->now(); k && !k->begun && h->now() - begun < PROBING_NS_PER_S;) {
        free(k);
        (void)nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        k = watcher_known(plugin_watcher(self));
    }
    return k;
}

static int scan_devices(void *self, struct probing_rows *out)
{
    const struct probing_host *h = plugin_host(self);
    struct known *k = known_soon(self);
    int rc = k ? 0 : h->fail(h, -ENOMEM, "no memory for the list of GPUs");
    for (uint32_t i = 0; k && i < k->n && rc == 0; i++)
        rc = emit_device(h, k, i, out);
    free(k);
    return probing_scanned(rc);
}

static const struct probing_table_desc device_table =
    PROBING_COMPUTED_TABLE("gpu.devices", devices, scan_devices,
                           "GPUs of the machine and their partitions, and which of them this "
                           "process sees");

/* ---- gpu.processes ---- */

static const struct probing_column processes[] = {
    PROBING_I64_COLUMN("index", PROBING_PLAIN, "of the device, as in gpu.devices"),
    PROBING_I64_COLUMN("partition", PROBING_PLAIN, "of the device; NULL: it has none"),
    PROBING_I64_COLUMN("pid", PROBING_PLAIN,
                       "as the driver sees it: in a container it may be the machine's number"),
    PROBING_STR_COLUMN("comm", "name of the process that has that number here; NULL: none has"),
    PROBING_STR_COLUMN("type", "compute or graphics"),
    PROBING_I64_COLUMN("used_bytes", PROBING_BYTES, "of device memory; NULL: not known"),
    PROBING_I64_COLUMN("self", PROBING_PLAIN, "1: this process, by its number"),
};

static int emit_process(const struct probing_host *h, const struct known *k,
                        const struct gpu_process *p, struct probing_rows *out)
{
    const struct gpu_device *d = &k->devices[p->device];
    const union probing_cell cells[] = {probing_i64(d->index),
                                        flag_cell(d->partition),
                                        probing_i64(p->pid),
                                        probing_str(text_or_null(p->name)),
                                        probing_str(p->graphics ? "graphics" : "compute"),
                                        count_cell(p->used_bytes),
                                        probing_i64(p->pid == (int64_t)getpid())};
    return h->emit(out, cells, PROBING_LENGTH(cells));
}

static int scan_processes(void *self, struct probing_rows *out)
{
    const struct probing_host *h = plugin_host(self);
    struct known *k = known_soon(self);
    int rc = k ? 0 : h->fail(h, -ENOMEM, "no memory for the list of processes");
    for (uint32_t i = 0; k && i < k->processes.n && rc == 0; i++)
        if (k->processes.all[i].device < k->n)
            rc = emit_process(h, k, &k->processes.all[i], out);
    free(k);
    return probing_scanned(rc);
}

static const struct probing_table_desc process_table =
    PROBING_COMPUTED_TABLE("gpu.processes", processes, scan_processes,
                           "processes that use GPUs, and how much of their memory");

int device_tables_make(struct device_tables *t, const struct probing_host *h)
{
    struct probing_table *computed;
    t->host = h;
    int r = h->table(h, &utilization_table, &t->utilization);
    if (r == 0)
        r = h->table(h, &partition_table, &t->partitions);
    if (r == 0)
        r = h->table(h, &device_table, &computed);
    return r == 0 ? h->table(h, &process_table, &computed) : r;
}
