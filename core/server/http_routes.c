/* SPDX-License-Identifier: Apache-2.0
 *
 * core/server/http_routes.c - the paths of the HTTP API: what each takes, and the command it
 * becomes.
 *
 * Loop only.  core/server/page/openapi.json describes the same paths for programs; a test compares
 * the two.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/server/http.h"
#include "core/server/internal.h"
#include "core/server/message.h"
#include "core/server/pack.h"
#include "sdk/lib/arena.h"

#define PARAMETER_BYTES (64u << 10) /* one parameter of a query string */

static const char text_type[] = "text/plain; charset=utf-8";
static const char json_type[] = "application/json";
static const char html_type[] = "text/html; charset=utf-8";
static const char svg_type[] = "image/svg+xml; charset=utf-8";
static const char js_type[] = "text/javascript; charset=utf-8";
static const char old_metrics_type[] = "text/plain; version=0.0.4; charset=utf-8";
static const char metrics_type[] = "application/openmetrics-text; version=1.0.0; charset=utf-8";

enum route_kind {
    ROUTE_ARGS, /* a command */
    ROUTE_LIST, /* a command that takes --format */
    ROUTE_METRICS,
    ROUTE_FLAME,
    ROUTE_RUN,
    ROUTE_QUERY,
    ROUTE_EVAL,
    ROUTE_HEALTH,
    ROUTE_PAGE,
    ROUTE_FILE,
};

struct route {
    const char *path;
    enum route_kind kind;
    bool get, post;
    const char *type;
    const char *words[1];
    const unsigned char *file;
    const size_t *file_size;
};

#define FILE_OF(name) .file = pack_page_##name, .file_size = &pack_page_##name##_size

static const struct route routes[] = {
    {"/", ROUTE_PAGE, .get = true},
    {"/page.js", ROUTE_FILE, .get = true, .type = js_type, FILE_OF(page_js)},
    {"/client.js", ROUTE_FILE, .get = true, .type = js_type, FILE_OF(client_js)},
    {"/openapi.json", ROUTE_FILE, .get = true, .type = json_type, FILE_OF(openapi_json)},
    {"/healthz", ROUTE_HEALTH, .get = true},
    {"/metrics", ROUTE_METRICS, .get = true, .type = metrics_type},
    {"/flamegraph", ROUTE_FLAME, .get = true},
    {"/run", ROUTE_RUN, .post = true, .type = text_type},
    {"/query", ROUTE_QUERY, .get = true, .post = true},
    {"/eval", ROUTE_EVAL, .post = true, .type = text_type},
    {"/backtrace", ROUTE_ARGS, .get = true, .type = text_type, .words = {"backtrace"}},
    {"/tables", ROUTE_LIST, .get = true, .words = {"tables"}},
    {"/plugins", ROUTE_LIST, .get = true, .words = {"plugins"}},
    {"/config", ROUTE_LIST, .get = true, .words = {"config"}},
    {"/scripts", ROUTE_LIST, .get = true, .words = {"scripts"}},
};

const struct route *server_route_find(const struct http_request *r)
{
    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++)
        if (server_slice_is(r->path, routes[i].path))
            return &routes[i];
    return NULL;
}

const char *server_route_methods(const struct route *route)
{
    return route->get && route->post ? "GET, HEAD, POST" : route->get ? "GET, HEAD" : "POST";
}

bool server_route_takes(const struct route *route, const struct http_request *r)
{
    bool gets = server_slice_is(r->method, "GET") || server_slice_is(r->method, "HEAD");
    return (route->get && gets) || (route->post && server_slice_is(r->method, "POST"));
}

/* The page for browsers, a few lines for everybody else. */
static void answer_page(struct connection *p, const struct http_request *r)
{
    struct buf page;
    if (p->cookie && r->wants_html) { /* the token leaves the address bar and the history */
        server_http_see(p, "/");
        return;
    }
    if (r->wants_html) {
        server_http_whole(p, 200, html_type, (const char *)pack_page_index_html,
                          pack_page_index_html_size);
        return;
    }
    buf_init(&page, 4096);
    (void)buf_addf(&page,
                   "probing %s in process %d\n\n"
                   "GET  /query?q=select+1&format=json   SQL over what was measured\n"
                   "POST /query                          the same, the body is the statement\n"
                   "POST /eval                           the body is Python code to run there\n"
                   "POST /run                            {\"run\":[\"backtrace\"]}: any command\n"
                   "GET  /backtrace /tables /plugins /config /scripts /healthz\n"
                   "GET  /metrics                        for Prometheus\n"
                   "GET  /flamegraph?format=html&last=1m what plugins have sampled\n"
                   "GET  /openapi.json /client.js        this API for programs\n"
                   "     /ws                             websocket, subprotocol probing.1\n\n"
                   "The same port speaks plain text: nc HOST PORT, then 'help'.\n",
                   p->server->version, (int)getpid());
    server_http_whole(p, 200, text_type, buf_text(&page), page.size);
    buf_done(&page);
}

/* ?format= as the last words of a command, `otherwise` when it is left out; 0 or -EINVAL. */
static int run_with_format(struct connection *p, const struct http_request *r, const char *command,
                           const char *text, const char *otherwise)
{
    struct buf format;
    buf_init(&format, 64);
    int rc = server_http_parameter(r->query, "format", &format);
    const char *f = rc == 1 ? buf_text(&format) : otherwise;
    p->content_type = strcmp(f, "json") == 0 ? json_type : text_type;
    const char *argv[] = {command, "--format", f, "--", text}; /* "-- " may begin a statement */
    if (rc >= 0)
        server_job_run(p, &(struct job_request){.argc = text ? 5 : 3, .argv = argv});
    buf_done(&format);
    return rc < 0 ? rc : 0;
}

/* ?format=svg&mode=wall&last=30s&width=900&threads&lines as the command's options. */
static int run_flamegraph(struct connection *p, const struct http_request *r)
{
    static const struct {
        const char *name, *option;
        bool takes_value;
    } takes[] = {{"format", "--format", true},    {"mode", "--mode", true},
                 {"last", "--last", true},        {"width", "--width", true},
                 {"threads", "--threads", false}, {"lines", "--lines", false}};
    enum { TAKES = sizeof(takes) / sizeof(takes[0]) };
    const char *argv[1 + 2 * TAKES] = {"flamegraph"};
    struct buf values[TAKES];
    int argc = 1, rc = 0;
    /* It brings its script with it, and names from the process: it may draw, and nothing else. */
    p->policy = "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; "
                "style-src 'unsafe-inline'";
    p->content_type = html_type;
    for (int i = 0; i < TAKES; i++) {
        buf_init(&values[i], 64);
        int found = server_http_parameter(r->query, takes[i].name, &values[i]);
        rc = found < 0 ? found : rc;
        if (found != 1)
            continue;
        argv[argc++] = takes[i].option;
        if (takes[i].takes_value)
            argv[argc++] = buf_text(&values[i]);
        if (i == 0 && strcmp(argv[argc - 1], "html") != 0)
            p->content_type = strcmp(argv[argc - 1], "svg") == 0 ? svg_type : text_type;
    }
    if (rc >= 0)
        server_job_run(p, &(struct job_request){.argc = argc, .argv = argv});
    for (int i = 0; i < TAKES; i++)
        buf_done(&values[i]);
    return rc;
}

static int run_query(struct connection *p, const struct http_request *r, struct slice body)
{
    struct buf q;
    buf_init(&q, SERVER_BODY_BYTES + PARAMETER_BYTES);
    int rc = server_http_parameter(r->query, "q", &q);
    if (rc == 0)
        rc = buf_add(&q, body.data, body.size);
    if (rc >= 0 && q.size == 0)
        rc = err_set(-EINVAL, "there is no statement; send it as the body or as ?q=");
    if (rc >= 0 && memchr(q.data, 0, q.size))
        rc = err_set(-EINVAL, "the statement contains a zero byte");
    if (rc >= 0)
        rc = run_with_format(p, r, "query", buf_text(&q), r->wants_arrow ? "arrow" : "json");
    buf_done(&q);
    return rc;
}

static int run_body(struct connection *p, const struct route *route, struct slice body)
{
    struct arena a;
    struct message m;
    int rc = 0;
    arena_init(&a, 8 * SERVER_BODY_BYTES);
    if (route->kind == ROUTE_RUN) {
        rc = server_message_args(&a, body.data, body.size, &m);
        if (rc == 0)
            server_job_run(p, &(struct job_request){
                                  .argc = m.argc, .argv = m.argv, .timeout_ns = m.timeout_ns});
    } else {
        const char *argv[] = {"eval", "--", arena_text(&a, body.data, body.size)};
        if (memchr(body.data, 0, body.size))
            rc = err_set(-EINVAL, "the code contains a zero byte");
        else if (argv[2])
            server_job_run(p, &(struct job_request){.argc = 3, .argv = argv});
        else
            rc = -ENOMEM;
    }
    arena_done(&a);
    return rc;
}

int server_route_run(struct connection *p, const struct route *route, const struct http_request *r,
                     struct slice body)
{
    p->content_type = route->type;
    switch (route->kind) {
    case ROUTE_PAGE:
        answer_page(p, r);
        return 0;
    case ROUTE_FILE:
        server_http_whole(p, 200, route->type, (const char *)route->file, *route->file_size);
        return 0;
    case ROUTE_HEALTH:
        server_http_whole(p, 200, text_type, "ok\n", 3);
        return 0;
    case ROUTE_RUN:
    case ROUTE_EVAL:
        return run_body(p, route, body);
    case ROUTE_QUERY:
        return run_query(p, r, body);
    case ROUTE_FLAME:
        return run_flamegraph(p, r);
    case ROUTE_LIST:
        return run_with_format(p, r, route->words[0], NULL, "table");
    case ROUTE_METRICS: {
        static const char *const words[] = {"metrics", "--text"};
        if (r->wants_text)
            p->content_type = old_metrics_type;
        server_job_run(p, &(struct job_request){.argc = r->wants_text ? 2 : 1, .argv = words});
        return 0;
    }
    case ROUTE_ARGS:
        server_job_run(p, &(struct job_request){.argc = 1, .argv = route->words});
        return 0;
    }
    return 0;
}
