/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/api/shares.h"

#include <pthread.h>
#include <stdlib.h>
#include <uthash.h>

struct user_share {
	struct shares *of;
	char *name;
	unsigned n_refs;
	size_t used[_SHARE_MAX];
	UT_hash_handle hh;
};

struct shares {
	pthread_mutex_t lock; /* guards all */
	size_t most[_SHARE_MAX], used[_SHARE_MAX];
	struct user_share *users;
	bool is_left; /* api_shares_free was called: the last user's end frees it */
};

struct shares *api_shares_new(const size_t most[static _SHARE_MAX])
{
	struct shares *s = xcalloc(1, sizeof(*s));

	memcpy(s->most, most, sizeof(s->most));
	pthread_mutex_init(&s->lock, NULL);
	return s;
}

static void user_free(struct user_share *u)
{
	HASH_DEL(u->of->users, u);
	free(u->name);
	free(u);
}

/* Gives the lock back. Frees all if nobody needs it any more. */
static void unlock(struct shares *s)
{
	bool last = s->is_left && !s->users;

	pthread_mutex_unlock(&s->lock);
	if (!last)
		return;
	pthread_mutex_destroy(&s->lock);
	free(s);
}

struct shares *api_shares_free(struct shares *s)
{
	if (!s)
		return NULL;
	pthread_mutex_lock(&s->lock);
	s->is_left = true;
	unlock(s);
	return NULL;
}

/* How many bytes of a user's name say who it is: of a ServiceAccount, those of its namespace. */
static size_t name_bytes(const char *user)
{
	static const char prefix[] = "system:serviceaccount:";
	size_t n = strlen(prefix);

	return str_has_prefix(user, prefix) ? n + strcspn(user + n, ":") : strlen(user);
}

struct user_share *api_share_join(struct shares *s, const char *user)
{
	size_t n = name_bytes(user);
	struct user_share *u;

	pthread_mutex_lock(&s->lock);
	HASH_FIND(hh, s->users, user, n, u);
	if (!u) {
		u = xcalloc(1, sizeof(*u));
		u->of = s;
		u->name = xstrndup(user, n);
		HASH_ADD_KEYPTR(hh, s->users, u->name, n, u);
	}
	u->n_refs++;
	pthread_mutex_unlock(&s->lock);
	return u;
}

void api_share_leave(struct user_share *u)
{
	struct shares *s = u ? u->of : NULL;

	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	if (--u->n_refs == 0)
		user_free(u);
	unlock(s);
}

bool api_share_take(struct user_share *u, enum share_of what, size_t n)
{
	struct shares *s = u->of;
	size_t is_free;
	bool ok;

	pthread_mutex_lock(&s->lock);
	is_free = s->most[what] - s->used[what];
	ok = n <= is_free && u->used[what] + n <= is_free - n;
	if (ok) {
		u->used[what] += n;
		s->used[what] += n;
	}
	pthread_mutex_unlock(&s->lock);
	return ok;
}

void api_share_give(struct user_share *u, enum share_of what, size_t n)
{
	struct shares *s = u->of;

	pthread_mutex_lock(&s->lock);
	assert_se(u->used[what] >= n);
	u->used[what] -= n;
	s->used[what] -= n;
	pthread_mutex_unlock(&s->lock);
}

size_t api_share_used(struct user_share *u, enum share_of what)
{
	size_t n;

	pthread_mutex_lock(&u->of->lock);
	n = u->used[what];
	pthread_mutex_unlock(&u->of->lock);
	return n;
}

/* ---- the bytes of an answer ---- */

static bool take_bytes(struct buf_budget *b, size_t n)
{
	struct reply_bytes *r = (struct reply_bytes *)b;
	bool ok = api_share_take(r->share, SHARE_REPLY_BYTES, n);

	r->held += ok ? n : 0;
	r->refused |= !ok;
	return ok;
}

struct reply_bytes *api_reply_bytes_new(struct shares *s, const char *user)
{
	struct reply_bytes *r = xcalloc(1, sizeof(*r));

	r->budget.take = take_bytes;
	r->share = api_share_join(s, user);
	return r;
}

void api_reply_bytes_keep(struct reply_bytes *r, size_t n)
{
	if (r->held <= n)
		return;
	api_share_give(r->share, SHARE_REPLY_BYTES, r->held - n);
	r->held = n;
}

void api_reply_bytes_free(void *arg)
{
	struct reply_bytes *r = arg;

	if (!r)
		return;
	api_reply_bytes_keep(r, 0);
	api_share_leave(r->share);
	free(r);
}
