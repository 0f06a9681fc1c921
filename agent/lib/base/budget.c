/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/budget.h"
#include "lib/base/base.h"

#include <stdlib.h>
#include <uthash.h>

struct budget_owner {
	uint64_t owner;
	size_t n_members;
	uint64_t shared, reserved; /* what its members have of the limit, and of the reserve */
	UT_hash_handle hh;
};

void budget_join(struct budget *b, struct budget_member *m, uint64_t owner)
{
	struct budget_owner *o;

	pthread_mutex_lock(&b->lock);
	HASH_FIND(hh, b->owners, &owner, sizeof(owner), o);
	if (!o) {
		o = xcalloc(1, sizeof(*o));
		o->owner = owner;
		HASH_ADD(hh, b->owners, owner, sizeof(o->owner), o);
	}
	o->n_members++;
	*m = (struct budget_member){o, 0};
	pthread_mutex_unlock(&b->lock);
}

/* Gives back what was taken from the reserve first. */
static void give_back(struct budget *b, struct budget_member *m, uint64_t n)
{
	const uint64_t reserved = MIN(m->of->reserved, n);

	assert_se(n <= m->n);
	m->n -= n;
	m->of->reserved -= reserved;
	m->of->shared -= n - reserved;
	b->all -= n - reserved;
}

void budget_give_back(struct budget *b, struct budget_member *m, uint64_t n)
{
	pthread_mutex_lock(&b->lock);
	give_back(b, m, n);
	pthread_mutex_unlock(&b->lock);
}

void budget_leave(struct budget *b, struct budget_member *m)
{
	struct budget_owner *o = m->of;

	pthread_mutex_lock(&b->lock);
	give_back(b, m, m->n);
	if (--o->n_members == 0) {
		HASH_DEL(b->owners, o);
		free(o);
	}
	m->of = NULL;
	pthread_mutex_unlock(&b->lock);
}

static bool reserve_has_room(const struct budget *b, const struct budget_member *m, uint64_t n)
{
	const struct budget_owner *o = m->of;
	const uint64_t part = b->max / 2 / HASH_COUNT(b->owners);

	return o->reserved + n <= part && m->n + n <= part / o->n_members;
}

bool budget_take(struct budget *b, struct budget_member *m, uint64_t n)
{
	struct budget_owner *o = m->of;
	bool taken = true;

	pthread_mutex_lock(&b->lock);
	if (shares_have_room(b->all, o->shared, n, b->max)) {
		b->all += n;
		o->shared += n;
	} else if (reserve_has_room(b, m, n)) {
		o->reserved += n;
	} else {
		shares_add(&b->refused, o->owner);
		taken = false;
	}
	m->n += taken ? n : 0;
	pthread_mutex_unlock(&b->lock);
	return taken;
}

void budget_refused(struct budget *b, struct shares *to)
{
	pthread_mutex_lock(&b->lock);
	shares_move_owners(to, &b->refused);
	pthread_mutex_unlock(&b->lock);
}
