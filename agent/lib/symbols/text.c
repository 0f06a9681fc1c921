/* SPDX-License-Identifier: Apache-2.0 */
/* Names and paths of pods hold any bytes; what leaves this module is text that JSON and protobuf take. */
#include "lib/symbols/symbols.h"

#include <stdlib.h>

#define SLOW_NAME_NS  (NSEC_PER_MSEC / 10)
#define SLOW_NAMES_NS (200 * NSEC_PER_MSEC)

char *text_clean(const char *s)
{
	char *text = xstrdup(s);
	unsigned char *p = (unsigned char *)text;

	while (*p) {
		size_t n = 1;

		if (*p < 0x20 || *p == 0x7f)
			*p = '?';
		else if (*p >= 0x80)
			n = utf8_len((const char *)p);
		if (n == 0) {
			*p = '?';
			n = 1;
		}
		p += n;
	}
	return text;
}

char *symbol_text(const char *name)
{
	_cleanup_free_ char *plain = demangle(name);

	return text_clean(plain ? plain : name);
}

char *symbol_text_within(const char *name, uint64_t *slow_ns)
{
	uint64_t began = thread_cpu_ns(), took;
	char *text;

	if (*slow_ns >= SLOW_NAMES_NS) {
		counter_add(counter("podflame_names_mangled_total", "reason", "slow_file"), 1);
		return text_clean(name);
	}
	text = symbol_text(name);
	took = thread_cpu_ns() - began;
	*slow_ns += took > SLOW_NAME_NS ? took : 0;
	return text;
}
