/* SPDX-License-Identifier: Apache-2.0 */
/* For tests only: calls of CUDA whose work the test describes. */
#pragma once

#include "e2e/gpu/standin.h"

#include <stddef.h>

struct test_call {
	uint32_t runtime_id;		/* of the runtime's function; 0: no such call */
	uint32_t driver_id;
	const char *function, *kernel;
	uint32_t context;
	const struct standin_work *work;
	size_t n_work;
};

/* Makes a call, whose work ends at once. Returns its correlation id. Any thread may call this. */
static inline uint32_t run_call(const struct test_call *c)
{
	struct standin_call driver = {.domain = 1,
				      .id = c->driver_id,
				      .function = c->function,
				      .kernel = c->kernel,
				      .context = c->context};
	struct standin_call runtime = driver;
	uint32_t correlation;

	runtime.domain = 2;
	runtime.id = c->runtime_id;
	if (c->runtime_id)
		standin_call_begin(&runtime);
	correlation = standin_call_begin(&driver);
	for (size_t i = 0; i < c->n_work; i++)
		standin_work(&c->work[i]);
	standin_call_end(&driver);
	if (c->runtime_id)
		standin_call_end(&runtime);
	return correlation;
}
