/* SPDX-License-Identifier: Apache-2.0 */
/* An entry of a mapping of names to durations, between the configuration and who obeys it. */
#pragma once

#include <stdint.h>

struct named_duration {
	const char *name;
	uint64_t ns;
};
