/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/usage/memory_limit_test.c - a folder of files as a memory cgroup of version 2.
 *
 * One thread.  A locale with a decimal comma is made where the machine has what it is made of.
 */
#include "usage/memory_limit.h"

#include <locale.h>
#include <stdlib.h>

#include "tests/test.h"

static struct cgroup group = {.version = 2};

static void put(const char *name, const char *text)
{
    char path[PROC_CGROUP_BYTES + 64];
    (void)snprintf(path, sizeof(path), "%s/%s", group.own.path, name);
    FILE *f = fopen(path, "we");
    if (CHECK(f != NULL)) {
        CHECK(fputs(text, f) >= 0);
        CHECK_INT(fclose(f), 0);
    }
}

static void pressure_is_read(void)
{
    struct cgroup_now now;
    cgroup_read(&group, &now);
    CHECK_INT(now.some_avg10 * 100, 275);
    CHECK_INT(now.full_avg10 * 100, 50);
}

TEST(pressure_whatever_the_locale)
{
    char command[PROC_CGROUP_BYTES + 128];
    put("memory.pressure", "some avg10=2.75 avg60=1.00 avg300=0.10 total=12345\n"
                           "full avg10=0.50 avg60=0.00 avg300=0.00 total=123\n");
    pressure_is_read();
    (void)snprintf(command, sizeof(command),
                   "localedef -i de_DE -f UTF-8 '%s/de_DE.UTF-8' 2>/dev/null", group.own.path);
    (void)setenv("LOCPATH", group.own.path, 1);
    if (system(command) != 0 || !setlocale(LC_ALL, "de_DE.UTF-8"))
        printf("# no locale with a decimal comma could be made here\n");
    pressure_is_read();
    (void)setlocale(LC_ALL, "C");
}

TEST(what_a_pressure_file_does_not_tell_is_not_known)
{
    struct cgroup_now now;
    put("memory.pressure", "some avg10= avg60=1.00\nfull avg10=1.2.3 avg60\n");
    cgroup_read(&group, &now);
    CHECK(now.some_avg10 != now.some_avg10); /* NAN */
    CHECK(now.full_avg10 != now.full_avg10);
}

int main(void)
{
    char command[PROC_CGROUP_BYTES + 64];
    (void)strcpy(group.own.path, "/tmp/memory_limit_test.XXXXXX");
    if (!mkdtemp(group.own.path))
        return test_skip("no folder can be made in /tmp");
    RUN(pressure_whatever_the_locale);
    RUN(what_a_pressure_file_does_not_tell_is_not_known);
    (void)snprintf(command, sizeof(command), "rm -r '%s'", group.own.path);
    CHECK_INT(system(command), 0);
    return test_end();
}
