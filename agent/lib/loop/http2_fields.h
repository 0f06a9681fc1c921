/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the HTTP client. */
#pragma once

#include "lib/loop/http_parse.h"

#include <nghttp2/nghttp2.h>

#define HTTP2_MAX_FIELDS (HTTP_MAX_HEADERS + 4)

/*
 * Cuts a head of HTTP/1.1, which http_send() has made, into at most HTTP2_MAX_FIELDS fields of
 * HTTP/2, whose texts lie in it. Returns their number.
 */
size_t http2_fields(char *head, bool tls, nghttp2_nv *fields);
