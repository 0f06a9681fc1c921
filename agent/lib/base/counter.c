/* SPDX-License-Identifier: Apache-2.0 */
/* The process's named counters. All losses, and their reasons, are counted here. */
#include "lib/base/base.h"

#include <pthread.h>

#define MAX_COUNTERS 1024 /* counters of the process */

struct counter {
	char *name, *label, *label_value;
	_Atomic uint64_t value;
};

static struct counter counters[MAX_COUNTERS];
static _Atomic size_t n_counters;
static pthread_mutex_t register_lock = PTHREAD_MUTEX_INITIALIZER;

static struct counter *find(const char *name, const char *label, const char *value)
{
	for (size_t i = 0; i < n_counters; i++) {
		struct counter *c = &counters[i];

		if (streq(c->name, name) && streq(c->label, label) && streq(c->label_value, value))
			return c;
	}
	return NULL;
}

struct counter *counter(const char *name, const char *label, const char *label_value)
{
	struct counter *c;

	label = label ? label : "";
	label_value = label_value ? label_value : "";
	c = find(name, label, label_value);
	if (c)
		return c;
	pthread_mutex_lock(&register_lock);
	c = find(name, label, label_value);
	if (!c) {
		/*
		 * All names are constants of the program, so only a bug can fill the table. In this
		 * case the last counter counts all names that did not fit.
		 */
		c = &counters[MIN(n_counters, (size_t)MAX_COUNTERS - 1)];
		if (n_counters < MAX_COUNTERS) {
			*c = (struct counter){xstrdup(name), xstrdup(label), xstrdup(label_value),
					      0};
			n_counters++;
		}
	}
	pthread_mutex_unlock(&register_lock);
	return c;
}

void counter_add(struct counter *c, uint64_t n)
{
	c->value += n;
}

uint64_t counter_get(const struct counter *c)
{
	return c->value;
}

void counter_set(struct counter *c, uint64_t value)
{
	c->value = value;
}

void counter_each(counter_fn *fn, void *arg)
{
	for (size_t i = 0; i < n_counters; i++)
		fn(counters[i].name, counters[i].label, counters[i].label_value, counters[i].value,
		   arg);
}
