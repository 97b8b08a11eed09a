/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/ship/libcurl_test.c - our numbers of libcurl's interface are its own; the library is found,
 * or who needs it learns what to install.
 */
#include <errno.h>
#include <stdio.h>

/* One unit, because a unit test is linked with libcore.a alone. */
#include "cli/ship/libcurl.c"
#include "tests/test.h"

#if defined(__has_include)
#if __has_include(<curl/curl.h>)
#include <curl/curl.h>
#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)
#define OPTION(name) SAME(CURL_##name, CURLOPT_##name)
#define RESULT(name) SAME(CURL_##name, CURLE_##name)
OPTION(WRITEDATA);
OPTION(URL);
OPTION(ERRORBUFFER);
OPTION(POSTFIELDS);
OPTION(USERAGENT);
OPTION(HTTPHEADER);
OPTION(SSLCERT);
OPTION(HEADERDATA);
OPTION(SSLVERSION);
OPTION(NOPROGRESS);
SAME(CURL_PROGRESSDATA, 10057); /* newer headers call it XFERINFODATA */
OPTION(CAINFO);
OPTION(SSLKEY);
OPTION(NOSIGNAL);
OPTION(HTTPAUTH);
OPTION(TIMEOUT_MS);
OPTION(USERNAME);
OPTION(PASSWORD);
SAME(CURL_PROTOCOLS, 181); /* deprecated since 7.85 for one that 7.29 has not */
SAME(CURL_HEADEROPT, 229); /* since 7.37, as its value */
SAME(CURL_HEADER_SEPARATE, 1);
SAME(CURL_HTTP09_ALLOWED, 285);
OPTION(WRITEFUNCTION);
SAME(CURL_PROGRESSFUNCTION, 20056); /* deprecated likewise */
OPTION(HEADERFUNCTION);
OPTION(POSTFIELDSIZE_LARGE);
SAME(CURL_INFO_RESPONSE_CODE, CURLINFO_RESPONSE_CODE);
SAME(CURL_INFO_HTTP_CONNECTCODE, CURLINFO_HTTP_CONNECTCODE);
SAME(CURL_INFO_OS_ERRNO, CURLINFO_OS_ERRNO);
SAME(CURL_ERROR_BYTES, CURL_ERROR_SIZE);
SAME(CURL_HTTP_AND_HTTPS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
SAME(CURL_TLS_1_2, CURL_SSLVERSION_TLSv1_2);
SAME(CURL_BASIC, CURLAUTH_BASIC);
RESULT(UNSUPPORTED_PROTOCOL);
RESULT(COULDNT_RESOLVE_PROXY);
RESULT(COULDNT_RESOLVE_HOST);
RESULT(COULDNT_CONNECT);
SAME(CURL_WEIRD_SERVER_REPLY, 8); /* its name came with 7.51 */
RESULT(PARTIAL_FILE);
RESULT(WRITE_ERROR);
RESULT(OUT_OF_MEMORY);
RESULT(OPERATION_TIMEDOUT);
RESULT(ABORTED_BY_CALLBACK);
RESULT(GOT_NOTHING);
RESULT(SSL_CERTPROBLEM);
RESULT(PEER_FAILED_VERIFICATION);
RESULT(SSL_CACERT_BADFILE);
#define COMPARED "compared with curl/curl.h"
#else
#define COMPARED "skipped: curl/curl.h is not installed, so the numbers were not compared"
#endif
#endif

static void test_found_or_said(void)
{
    const struct libcurl *l;
    int rc = libcurl_load(&l);

    CHECK(rc == 0 || rc == -ENOPKG);
    if (rc < 0) {
        CHECK(strstr(err_why(rc), "libcurl4") != NULL);
        return;
    }
    CURL *easy = l->easy_init();
    CHECK(easy != NULL);
    CHECK_INT(l->easy_setopt(easy, CURL_TIMEOUT_MS, 1000L), CURL_OK);
    CHECK_INT(l->easy_setopt(easy, CURL_PROTOCOLS, (long)CURL_HTTP_AND_HTTPS), CURL_OK);
    CHECK_INT(l->easy_setopt(easy, CURL_URL, "ftp://127.0.0.1/"), CURL_OK);
    CHECK_INT(l->easy_perform(easy), CURL_UNSUPPORTED_PROTOCOL);
    l->easy_cleanup(easy);
}

int main(void)
{
    puts(COMPARED);
    RUN(found_or_said);
    return test_end();
}
