/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shares: whether an owner, usually a namespace, may have more of something that has a limit. As
 * long as a quarter of it is free, each owner may. Of that quarter, an owner gets nothing if it has
 * as much as is free. So what one owner has too much of takes no room from the others.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/*
 * The rule. all: what all owners have together; own: what this one has; more: what it asks for;
 * max: what there is.
 */
static inline bool shares_have_room(uint64_t all, uint64_t own, uint64_t more, uint64_t max)
{
	return all + more <= max && (all < max - max / 4 || all + own < max);
}

/* How many items each owner has. Zeros: no owner has any. */
struct shares {
	struct share_held *by_owner;
	uint64_t all;
};
/* Whether the owner may have one more of at most `max` items. */
bool shares_may_add(const struct shares *s, uint64_t owner, uint64_t max);
void shares_add(struct shares *s, uint64_t owner);
void shares_remove(struct shares *s, uint64_t owner); /* the owner has at least one */
/* Returns the owner that has most; if the given one has as many, returns that one. */
uint64_t shares_most(const struct shares *s, uint64_t owner);
/* Calls fn for each owner that has any. fn must not change s. */
void shares_each(const struct shares *s, void (*fn)(uint64_t owner, void *arg), void *arg);
void shares_done(struct shares *s); /* no owner has any after it */
/* Each owner that has any in `from` has one more in `to`, and `from` is empty. */
void shares_move_owners(struct shares *to, struct shares *from);

/* An item that may have to make room for others: a member of the caller's struct. */
struct share_item {
	uint64_t owner;
	struct share_item *prev, *next; /* of this owner, in the order in which they were put */
};
/* The owner has one more: this item, which is not in any struct shares yet. Stores a pointer. */
void shares_put(struct shares *s, struct share_item *i, uint64_t owner);
void shares_take(struct shares *s, struct share_item *i); /* the owner does not have it any more */
/* Makes `owner` the owner of an item that was put. It is the newest of these. */
void shares_give(struct shares *s, struct share_item *i, uint64_t owner);
/*
 * Returns which item is to make room for one more of the owner: the oldest one of shares_most().
 * NULL: no item was put.
 */
struct share_item *shares_surplus(const struct shares *s, uint64_t owner);
