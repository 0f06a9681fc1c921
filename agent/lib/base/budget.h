/* SPDX-License-Identifier: Apache-2.0 */
/*
 * budget: a limit for what the agent keeps of all processes together, such as bytes of names. Each
 * process belongs to an owner, usually a namespace, which has its share (lib/base/shares.h). Beside
 * that there is a reserve, half as large as the limit. Each owner has an equal part of it, and each
 * process of the owner an equal part of that, as long as the owner's part lasts. So a namespace has
 * room however much others keep. All threads may use a budget.
 */
#pragma once

#include "lib/base/shares.h"

#include <pthread.h>
#include <stddef.h>

struct budget {
	pthread_mutex_t lock;
	uint64_t max;
	struct budget_owner *owners; /* those that have members */
	uint64_t all;		     /* what was taken from the limit, not from the reserve */
	struct shares refused;	     /* for budget_refused() */
};
#define BUDGET(max_)                                                                               \
	{                                                                                          \
		.lock = PTHREAD_MUTEX_INITIALIZER, .max = (max_)                                   \
	}

/* What is kept of one process. The caller reads n, and changes nothing. */
struct budget_member {
	struct budget_owner *of;
	uint64_t n;
};
void budget_join(struct budget *b, struct budget_member *m, uint64_t owner);
void budget_leave(struct budget *b, struct budget_member *m); /* gives all back */
/* false: there is no room. Then nothing is taken, and the owner is noted. */
bool budget_take(struct budget *b, struct budget_member *m, uint64_t n);
void budget_give_back(struct budget *b, struct budget_member *m, uint64_t n);
/* Adds to `to` each owner for which there was no room since the last call. */
void budget_refused(struct budget *b, struct shares *to);
