/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many bytes of uploads each user may have under way: from when the hub accepts the body, by
 * the length that the client announces, until the file is stored. So a user who uploads slowly, or
 * much, leaves room to the others. Loop thread.
 */
#include "hub/api/api_private.h"

#include <stdlib.h>
#include <utlist.h>

#define LEAST_BYTES (4u << 20) /* an upload counts as at least this, because it has a connection */

struct upload {
	struct api *api;
	struct http_conn *conn;
	struct user_share *share;
	size_t n;
	struct upload *prev, *next;
};

void api_upload_free(struct upload *u)
{
	if (!u)
		return;
	api_share_give(u->share, SHARE_UPLOAD_BYTES, u->n);
	api_share_leave(u->share);
	free(u);
}

struct upload *api_upload_came(struct api *a, struct http_conn *conn)
{
	struct upload *u;

	DL_SEARCH_SCALAR(a->uploads, u, conn, conn);
	if (!u)
		return NULL;
	http_conn_on_gone(conn, NULL, NULL);
	DL_DELETE(a->uploads, u);
	return u;
}

static void uploader_left(void *arg)
{
	struct upload *u = arg;

	DL_DELETE(u->api->uploads, u);
	api_upload_free(u);
}

static void refuse(struct call *c, bool has_others)
{
	counter_add(counter("api_refused_total", "reason",
			    has_others ? "user_upload_bytes" : "uploads_busy"),
		    1);
	if (has_others)
		api_call_error(c, "TOO_MANY_REQUESTS",
			       "your uploads that are under way are too large together: wait for "
			       "one of them to end");
	else
		api_call_error(c, "UNAVAILABLE",
			       "uploads of other users leave no room for one of this size; try "
			       "again");
}

void api_accept_upload(struct call *c)
{
	struct api *a = c->api;
	struct user_share *share = api_share_join(a->shares, c->user);
	size_t n = (size_t)MIN(c->content_length, (uint64_t)SYMBOLS_UPLOAD_BYTES);
	struct upload *u;

	n = MAX(n, LEAST_BYTES);
	if (!api_share_take(share, SHARE_UPLOAD_BYTES, n)) {
		refuse(c, api_share_used(share, SHARE_UPLOAD_BYTES) > 0);
		api_share_leave(share);
		return;
	}
	u = xcalloc(1, sizeof(*u));
	*u = (struct upload){.api = a, .conn = c->conn, .share = share, .n = n};
	DL_APPEND(a->uploads, u);
	http_conn_on_gone(c->conn, uploader_left, u);
	http_accept_body(c->conn, SYMBOLS_UPLOAD_BYTES);
	api_call_free(c);
}
