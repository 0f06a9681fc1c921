/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For a *_fuzz.c whose input is a script: each byte chooses what the fuzzer does next. After the
 * last byte, all further bytes are 0.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

static struct {
	const uint8_t *data;
	size_t n;
} in;

static inline unsigned take(void)
{
	if (in.n == 0)
		return 0;
	in.n--;
	return *in.data++;
}

/* Aborts if the condition does not hold: the fuzzer reports a finding. */
static inline void check(bool ok)
{
	if (!ok)
		abort();
}
