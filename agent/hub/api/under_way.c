/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many requests a user has under way: from the check of the user until the answer is given to
 * the connection. Where nobody signs in, nothing is counted, because all requests are of one user.
 */
#include "hub/api/api_private.h"

/* Uploads have a share of their own: uploads.c. */
static size_t shared_body_bytes(const struct call *c)
{
	return c->route && c->route->flags & UPLOAD ? 0 : c->n_body;
}

void api_call_leave(struct call *c)
{
	if (!c->share)
		return;
	api_share_give(c->share, SHARE_REQUESTS, 1);
	api_share_give(c->share, SHARE_BODY_BYTES, shared_body_bytes(c));
	api_share_leave(c->share);
}

bool api_call_enter(struct call *c)
{
	struct user_share *u = *c->user ? api_share_join(c->api->shares, c->user) : NULL;
	bool one_more = u && api_share_take(u, SHARE_REQUESTS, 1);

	if (!u || (one_more && api_share_take(u, SHARE_BODY_BYTES, shared_body_bytes(c)))) {
		c->share = u;
		return true;
	}
	if (one_more)
		api_share_give(u, SHARE_REQUESTS, 1);
	api_share_leave(u);
	counter_add(counter("api_refused_total", "reason",
			    one_more ? "user_body_bytes" : "user_requests"),
		    1);
	api_call_error(c, "TOO_MANY_REQUESTS",
		       one_more ? "the bodies of your requests that are under way are too large "
				  "together: wait for an answer before you send the next request"
				: "too many of your requests are under way: wait for an answer "
				  "before you send the next one");
	return false;
}
