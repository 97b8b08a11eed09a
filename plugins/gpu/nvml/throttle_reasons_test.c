/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/gpu/nvml/throttle_reasons_test.c - the words of NVML's bits, also of newer drivers.
 */
#include "nvml/nvml_reader.h"
#include "tests/test.h"

TEST(reasons)
{
    char text[GPU_TEXT_BYTES], little[8];
    nvml_reason_words(0, text, sizeof(text));
    CHECK_STR(text, "none");
    nvml_reason_words(0x4 | 0x40, text, sizeof(text));
    CHECK_STR(text, "power cap, hardware thermal");
    nvml_reason_words(0x1 | 0x100000, text, sizeof(text));
    CHECK_STR(text, "idle, 0x100000");
    nvml_reason_words(UINT64_MAX, text, sizeof(text));
    CHECK(strlen(text) < sizeof(text));
    nvml_reason_words(UINT64_MAX, little, sizeof(little));
    CHECK_STR(little, "idle, a");
}

int main(void)
{
    RUN(reasons);
    return test_end();
}
