/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to api/: how much of what all users share one of them has. A user may have as much as is
 * then still free. So one user alone gets half of all, and of two that want much each gets a third,
 * but a further one always finds something. ServiceAccounts of one namespace are one user here,
 * because who may make one may make many. Functions may be called on any thread.
 */
#pragma once

#include "lib/base/base.h"

enum share_of {
	SHARE_REQUESTS,	   /* requests that are not answered yet */
	SHARE_BODY_BYTES,  /* their bodies */
	SHARE_REPLY_BYTES, /* answers that are made, or not sent to their end */
	SHARE_UPLOAD_BYTES, /* uploads, from when their body may come until they are stored */
	_SHARE_MAX,
};

struct shares;
struct shares *api_shares_new(const size_t most[static _SHARE_MAX]);
struct shares *api_shares_free(struct shares *s); /* those that are not left stay valid */

struct user_share; /* what a user has; each api_share_join needs an api_share_leave */
struct user_share *api_share_join(struct shares *s, const char *user);
void api_share_leave(struct user_share *u); /* NULL: does nothing */
/* Returns false, and takes nothing, if the user has its share already. */
bool api_share_take(struct user_share *u, enum share_of what, size_t n);
void api_share_give(struct user_share *u, enum share_of what, size_t n);
size_t api_share_used(struct user_share *u, enum share_of what);

/*
 * The bytes of one answer, from when it is made until it has been sent. The worker's buffers take
 * from it (struct buf), and the tree of which the answer is made.
 */
struct reply_bytes {
	struct buf_budget budget; /* of the buffers */
	struct user_share *share;
	size_t held;
	bool refused; /* there was no room */
};
struct reply_bytes *api_reply_bytes_new(struct shares *s, const char *user);
void api_reply_bytes_keep(struct reply_bytes *r, size_t n); /* gives back what is above n */
void api_reply_bytes_free(void *r); /* NULL: does nothing */
