/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/gpu/nvml/throttle_reasons.c - why a GPU's clocks are held back (throttling), in words.
 *
 * Any thread; no state.
 */
#include "nvml/nvml_reader.h"

void nvml_reason_words(uint64_t reasons, char *ret, size_t size)
{
    static const struct {
        uint64_t bit;
        const char *words;
    } known[] = {{NVML_REASON_IDLE, "idle"},
                 {NVML_REASON_APPLICATION_CLOCKS, "application clocks"},
                 {NVML_REASON_POWER_CAP, "power cap"},
                 {NVML_REASON_HARDWARE, "hardware slowdown"},
                 {NVML_REASON_SYNC_BOOST, "sync boost"},
                 {NVML_REASON_THERMAL, "thermal"},
                 {NVML_REASON_HARDWARE_THERMAL, "hardware thermal"},
                 {NVML_REASON_POWER_BRAKE, "power brake"},
                 {NVML_REASON_DISPLAY, "display clocks"},
                 {NVML_REASON_BOARD_LIMIT, "board limit"},
                 {NVML_REASON_RELIABILITY, "reliability"}};
    size_t at = 0;
    (void)snprintf(ret, size, "%s", "none");
    for (size_t i = 0; i < PROBING_LENGTH(known) && at < size; i++) {
        if (!(reasons & known[i].bit))
            continue;
        at += (size_t)snprintf(ret + at, size - at, "%s%s", at ? ", " : "", known[i].words);
        reasons &= ~known[i].bit;
    }
    if (reasons && at < size) /* of a newer driver */
        (void)snprintf(ret + at, size - at, "%s0x%llx", at ? ", " : "",
                       (unsigned long long)reasons);
}
