/* SPDX-License-Identifier: Apache-2.0 */
/* HotSpot: see runtime.h. */
#include "node/runtime/internal.h"

static int learn(const struct runtime_look *look, struct runtime_learnt *old,
		 struct runtime_learnt *ret)
{
	(void)look;
	(void)old;
	(void)ret;
	return -ENOENT;
}

static int resolve(void *state, struct memory *m, const struct runtime_words *frame,
		   const struct runtime_words *caller, struct runtime_names *ret)
{
	(void)state;
	(void)m;
	(void)frame;
	(void)caller;
	(void)ret;
	return -ENOENT;
}

static void forget(void *state)
{
	(void)state;
}

static const char *const marks[] = {NULL};

const struct runtime_ops jvm_runtime = {
	.name = "jvm",
	.title = "HotSpot",
	.frame_kind = FRAME_JVM,
	.marks = marks,
	.learn = learn,
	.resolve = resolve,
	.forget = forget,
};
