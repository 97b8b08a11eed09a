/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/ship/libcurl.h - the system's libcurl, found when it is needed: with it come TLS, proxies and
 * the certificates of this machine, kept up to date by whoever keeps the machine.
 *
 * What is declared here is the part of its interface that we use, with the numbers of curl/curl.h,
 * which have not changed since 7.19.4 (2009); libcurl_test.c compares them where that is installed.
 * One thread.
 */
#ifndef CLI_SHIP_LIBCURL_H
#define CLI_SHIP_LIBCURL_H

typedef void CURL;
struct curl_slist;

enum {
    CURL_WRITEDATA = 10001,
    CURL_URL = 10002,
    CURL_ERRORBUFFER = 10010,
    CURL_POSTFIELDS = 10015,
    CURL_USERAGENT = 10018,
    CURL_HTTPHEADER = 10023,
    CURL_SSLCERT = 10025,
    CURL_HEADERDATA = 10029,
    CURL_SSLVERSION = 32,
    CURL_NOPROGRESS = 43,
    CURL_PROGRESSDATA = 10057,
    CURL_CAINFO = 10065,
    CURL_SSLKEY = 10087,
    CURL_NOSIGNAL = 99,
    CURL_HTTPAUTH = 107,
    CURL_TIMEOUT_MS = 155,
    CURL_USERNAME = 10173,
    CURL_PASSWORD = 10174,
    CURL_PROTOCOLS = 181,
    CURL_HEADEROPT = 229,      /* since 7.37; before, a proxy on the way got the token, too */
    CURL_HTTP09_ALLOWED = 285, /* since 7.64; before, such answers were taken */
    CURL_WRITEFUNCTION = 20011,
    CURL_PROGRESSFUNCTION = 20056,
    CURL_HEADERFUNCTION = 20079,
    CURL_POSTFIELDSIZE_LARGE = 30120,
};
enum {
    CURL_INFO_RESPONSE_CODE = 0x200002,
    CURL_INFO_HTTP_CONNECTCODE = 0x200016, /* of a proxy that was to lead through */
    CURL_INFO_OS_ERRNO = 0x200019,
};
enum { CURL_ERROR_BYTES = 256, CURL_HTTP_AND_HTTPS = 3, CURL_TLS_1_2 = 6, CURL_BASIC = 1 };
enum { CURL_HEADER_SEPARATE = 1 };
enum curl_result {
    CURL_OK = 0,
    CURL_UNSUPPORTED_PROTOCOL = 1,
    CURL_COULDNT_RESOLVE_PROXY = 5,
    CURL_COULDNT_RESOLVE_HOST = 6,
    CURL_COULDNT_CONNECT = 7,
    CURL_WEIRD_SERVER_REPLY = 8,
    CURL_PARTIAL_FILE = 18,
    CURL_WRITE_ERROR = 23,
    CURL_OUT_OF_MEMORY = 27,
    CURL_OPERATION_TIMEDOUT = 28,
    CURL_ABORTED_BY_CALLBACK = 42,
    CURL_GOT_NOTHING = 52,
    CURL_SSL_CERTPROBLEM = 58,
    CURL_PEER_FAILED_VERIFICATION = 60,
    CURL_SSL_CACERT_BADFILE = 77,
};

struct libcurl {
    CURL *(*easy_init)(void);
    int (*easy_setopt)(CURL *, int option, ...);
    int (*easy_perform)(CURL *);
    int (*easy_getinfo)(CURL *, int info, ...);
    void (*easy_cleanup)(CURL *);
    const char *(*easy_strerror)(int);
    struct curl_slist *(*slist_append)(struct curl_slist *, const char *);
    void (*slist_free_all)(struct curl_slist *);
};

/* -ENOPKG: it is not installed; the words say what to install. */
int libcurl_load(const struct libcurl **ret);

#endif
