/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/cluster/rendezvous_state_test.c - the nodes in states that torch has written, and what is
 * refused.
 */
#include <errno.h>
#include <stdlib.h>

/* One unit, because a unit test is linked with libcore.a alone. */
#include "cli/cluster/rendezvous_state.c"
#include "tests/test.h"

/* Not asked here. */
int torch_store_get(const char *host, uint16_t port, const char *key, uint64_t timeout_ns,
                    struct buf *ret)
{
    (void)host, (void)port, (void)key, (void)timeout_ns, (void)ret;
    return err_set(-ENOENT, "no store");
}

/* _RendezvousState of torch 2.13: node1.cluster (pid 4711) and 10.0.0.2 (70000) take part, node3
 * waits; base64 of pickle.dumps(). */
static const char torch_2_13[] =
    "gASVvwEAAAAAAACMN3RvcmNoLmRpc3RyaWJ1dGVkLmVsYXN0aWMucmVuZGV6dm91cy5keW5hbWljX3JlbmRlenZvdXOU"
    "jBBfUmVuZGV6dm91c1N0YXRllJOUKYGUfZQojAVyb3VuZJRLA4wIY29tcGxldGWUiIwIZGVhZGxpbmWUjAhkYXRldGlt"
    "ZZSMCGRhdGV0aW1llJOUQwoH6gEBAAAAAAAAlIWUUpSMBmNsb3NlZJSJjAxwYXJ0aWNpcGFudHOUfZQoaACMCV9Ob2Rl"
    "RGVzY5STlCmBlH2UKIwEYWRkcpSMDW5vZGUxLmNsdXN0ZXKUjANwaWSUTWcSjAhsb2NhbF9pZJRLAHViSwBoEimBlH2U"
    "KGgVjAgxMC4wLjAuMpRoF0pwEQEAaBhLAHViSwF1jAl3YWl0X2xpc3SUj5QoaBIpgZR9lChoFYwFbm9kZTOUaBdLB2gY"
    "SwB1YpCMD3JlZHVuZGFuY3lfbGlzdJSPlIwPbGFzdF9oZWFydGJlYXRzlH2UKGgTaApDCgfqAQEAAAAAAACUhZRSlGgZ"
    "aApDCgfqAQEAAAAAAACUhZRSlGgeaApDCgfqAQEAAAAAAACUhZRSlHV1Yi4=";
/* The same of torch 1.13. */
static const char torch_1_13[] =
    "gASVqwEAAAAAAACMN3RvcmNoLmRpc3RyaWJ1dGVkLmVsYXN0aWMucmVuZGV6dm91cy5keW5hbWljX3JlbmRlenZvdXOU"
    "jBBfUmVuZGV6dm91c1N0YXRllJOUKYGUfZQojAVyb3VuZJRLA4wIY29tcGxldGWUiIwIZGVhZGxpbmWUjAhkYXRldGlt"
    "ZZSMCGRhdGV0aW1llJOUQwoH6gEBAAAAAAAAlIWUUpSMBmNsb3NlZJSJjAxwYXJ0aWNpcGFudHOUfZQoaACMCV9Ob2Rl"
    "RGVzY5STlCmBlH2UKIwEZnFkbpSMDW5vZGUxLmNsdXN0ZXKUjANwaWSUTWcSjAhsb2NhbF9pZJRLAHViSwBoEimBlH2U"
    "KGgVjAgxMC4wLjAuMpRoF0pwEQEAaBhLAHViSwF1jAl3YWl0X2xpc3SUj5QoaBIpgZR9lChoFYwFbm9kZTOUaBdLB2gY"
    "SwB1YpCMD2xhc3RfaGVhcnRiZWF0c5R9lChoE2gKQwoH6gEBAAAAAAAAlIWUUpRoGWgKQwoH6gEBAAAAAAAAlIWUUpRo"
    "HmgKQwoH6gEBAAAAAAAAlIWUUpR1dWIu";

static struct torch_node seen[8];
static int n_seen;

static int see(void *arg, const struct torch_node *node)
{
    if (n_seen < 8)
        seen[n_seen++] = *node;
    return arg != NULL ? -ECANCELED : 0;
}

static int nodes_of(const char *text, size_t size)
{
    n_seen = 0;
    return torch_rendezvous_read(text, size, see, NULL);
}

static void check_three(const char *text)
{
    CHECK_INT(nodes_of(text, strlen(text)), 0);
    if (!CHECK(n_seen == 3))
        return;
    CHECK_STR(seen[0].host, "node1.cluster");
    CHECK_INT(seen[0].pid, 4711);
    CHECK_INT(seen[0].rank, 0);
    CHECK_STR(seen[1].host, "10.0.0.2");
    CHECK_INT(seen[1].pid, 70000);
    CHECK_INT(seen[1].rank, 1);
    CHECK_STR(seen[2].host, "node3");
    CHECK_INT(seen[2].pid, 7);
    CHECK_INT(seen[2].rank, -1);
}

TEST(states_of_torch)
{
    check_three(torch_2_13);
    check_three(torch_1_13);
}

TEST(who_is_told_may_end_it)
{
    CHECK_INT(torch_rendezvous_read(torch_2_13, strlen(torch_2_13), see, seen), -ECANCELED);
}

/* Cut anywhere, in a heap block of its own size for the sanitizer: no node that is not whole. */
TEST(cut_short)
{
    for (size_t n = 0; n < sizeof(torch_2_13) - 1; n++) {
        char *text = malloc(n + 1);
        if (!CHECK(text != NULL))
            return;
        memcpy(text, torch_2_13, n);
        text[n] = '\0';
        int rc = nodes_of(text, n);
        CHECK(rc == 0 || rc == -EBADMSG);
        CHECK(rc < 0 || n_seen == 3);
        free(text);
    }
}

/* Each byte changed: an answer or a refusal, and names that are names. */
TEST(damaged)
{
    char text[sizeof(torch_2_13)];

    for (size_t i = 0; i < sizeof(text) - 1; i++)
        for (int letter = 0; letter < 64; letter += 9) {
            memcpy(text, torch_2_13, sizeof(text));
            text[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[letter];
            (void)nodes_of(text, sizeof(text) - 1);
            for (int k = 0; k < n_seen; k++)
                CHECK(seen[k].host[0] != '-' && strpbrk(seen[k].host, " ;`$\n'\"") == NULL);
        }
}

TEST(refused)
{
    CHECK_INT(nodes_of("", 0), -EBADMSG);
    CHECK_INT(nodes_of("????", 4), -EBADMSG);
    CHECK_INT(nodes_of("gARLAC4=", 8), -EBADMSG);          /* the number 0 */
    CHECK_INT(nodes_of("Y29zCnN5c3RlbQou", 16), -EBADMSG); /* "cos\nsystem\n." is not looked up */
}

int main(void)
{
    RUN(states_of_torch);
    RUN(who_is_told_may_end_it);
    RUN(cut_short);
    RUN(damaged);
    RUN(refused);
    return test_end();
}
